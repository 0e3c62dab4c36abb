// Contend KIND L: gets the lock L as a Java program does, tells "held", lasts until its input ends, gives it back.
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.file.Paths;
import java.nio.file.StandardOpenOption;

public class Contend {
    public static void main(String[] arguments) throws Exception {
        try (FileChannel channel = FileChannel.open(Paths.get(arguments[1]), StandardOpenOption.WRITE,
                StandardOpenOption.CREATE);
                FileLock lock = arguments[0].equals("lock") ? channel.lock() : channel.tryLock()) {
            if (lock == null) {
                System.err.println("tryLock: refused");
                System.exit(1);
            }
            System.out.println("held");
            System.out.flush();
            while (System.in.read() >= 0) {
            }
        }
    }
}
