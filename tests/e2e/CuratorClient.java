import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Deque;
import java.util.Scanner;
import java.util.concurrent.Callable;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.retry.RetryOneTime;

/**
 * A process of a test that takes locks with Curator's recipes.
 *
 * Argument: HOST:PORT and the chroot.  Each line of its input is `ID REQUEST`, of its output `ID ANSWER`:
 *
 *     lock PATH               InterProcessMutex takes it: held
 *     try PATH                held or refused
 *     semaphore PATH LEASES   InterProcessSemaphoreV2 takes one: held
 *     trysemaphore PATH LEASES
 *     release                 what was taken last: ok
 */
public class CuratorClient {
    private static final Deque<Callable<Void>> held = new ArrayDeque<>();
    private static CuratorFramework client;

    private static String mutex(String path, boolean wait) throws Exception {
        InterProcessMutex mutex = new InterProcessMutex(client, path);
        if (wait) {
            mutex.acquire();
        } else if (!mutex.acquire(0, TimeUnit.SECONDS)) {
            return "refused";
        }
        held.push(() -> {
            mutex.release();
            return null;
        });
        return "held";
    }

    private static String semaphore(String path, int leases, boolean wait) throws Exception {
        InterProcessSemaphoreV2 semaphore = new InterProcessSemaphoreV2(client, path, leases);
        Lease lease = wait ? semaphore.acquire() : semaphore.acquire(0, TimeUnit.SECONDS);
        if (lease == null) {
            return "refused";
        }
        held.push(() -> {
            lease.close();
            return null;
        });
        return "held";
    }

    private static String answer(String[] words) throws Exception {
        boolean wait = !words[0].startsWith("try");
        switch (words[0]) {
        case "lock":
        case "try":
            return mutex("/" + words[1], wait);
        case "semaphore":
        case "trysemaphore":
            return semaphore("/" + words[1], Integer.parseInt(words[2]), wait);
        case "release":
            held.pop().call();
            return "ok";
        default:
            return "what?";
        }
    }

    public static void main(String[] arguments) throws Exception {
        client = CuratorFrameworkFactory.newClient(arguments[0], 4000, 30000, new RetryOneTime(1000));
        client.start();
        Scanner input = new Scanner(System.in);
        while (input.hasNextLine()) {
            String[] words = input.nextLine().split(" ");
            System.out.println(words[0] + " " + answer(Arrays.copyOfRange(words, 1, words.length)));
        }
        client.close();
    }
}
