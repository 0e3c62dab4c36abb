import java.util.Arrays;
import java.util.Scanner;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;

/**
 * Curator's InterProcessMutex, as clients.py and handover.py measure others:
 *
 *     CuratorLocks cycle HOST:PORT/ROOT COUNT             prints the median, 90 and 99 percent in nanoseconds
 *     CuratorLocks handover HOST:PORT/ROOT COUNT [hold]   talks by lines as handover.py does
 */
public class CuratorLocks {
    private static final int WARM_UP = 200;
    private static CuratorFramework client;

    private static long[] cycle(int count) throws Exception {
        InterProcessMutex mutex = new InterProcessMutex(client, "/clients");
        long[] took = new long[count];
        for (int i = -WARM_UP; i < count; i++) {
            long began = System.nanoTime();
            mutex.acquire();
            mutex.release();
            if (i >= 0) {
                took[i] = System.nanoTime() - began;
            }
        }
        Arrays.sort(took);
        return took;
    }

    private static Thread waiter(long[] times) {
        return new Thread(() -> {
            InterProcessMutex mutex = new InterProcessMutex(client, "/lock");
            try {
                mutex.acquire();
                times[0] = System.nanoTime();
                times[1] = System.nanoTime();
                mutex.release();
            } catch (Exception e) {
                throw new RuntimeException(e);
            }
        });
    }

    private static void handover(int count, boolean hold) throws Exception {
        InterProcessMutex holder = new InterProcessMutex(client, "/lock");
        long[][] times = new long[count][2];
        Thread[] threads = new Thread[count];
        Scanner input = new Scanner(System.in);
        cycle(0);
        if (hold) {
            holder.acquire();
        }
        for (int i = 0; i < count; i++) {
            threads[i] = waiter(times[i]);
        }
        System.out.println("ready");
        input.nextLine(); // wait
        for (Thread thread : threads) {
            thread.start();
        }
        input.nextLine(); // release
        if (hold) {
            System.out.println("- " + System.nanoTime());
            holder.release();
        }
        for (int i = 0; i < count; i++) {
            threads[i].join();
            System.out.println(times[i][0] + " " + times[i][1]);
        }
    }

    public static void main(String[] arguments) throws Exception {
        client = CuratorFrameworkFactory.newClient(arguments[1], new RetryOneTime(1000));
        client.start();
        if (arguments[0].equals("cycle")) {
            int count = Integer.parseInt(arguments[2]);
            long[] took = cycle(count);
            System.out.println(took[(count - 1) / 2] + " " + took[(count - 1) * 9 / 10] + " " + took[(count - 1) * 99 / 100]);
        } else {
            handover(Integer.parseInt(arguments[2]), arguments.length > 3);
        }
        client.close();
    }
}
