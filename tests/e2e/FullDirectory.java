import java.io.File;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.server.persistence.FileTxnLog;
import org.apache.zookeeper.txn.CreateTxn;
import org.apache.zookeeper.txn.TxnHeader;

/**
 * Makes a leasefs directory that has given all of its numbers, which would take weeks to be reached.
 *
 * Arguments: the data directory of a server that does not run, and the node's path; what it is in must be there.
 */
public class FullDirectory {
    private static long zxid = 1L << 32; // after all that the server has done

    private static void create(FileTxnLog log, String path, String data, int version) throws Exception {
        CreateTxn made = new CreateTxn(path, data.getBytes(), ZooDefs.Ids.OPEN_ACL_UNSAFE, false, version);
        zxid++;
        log.append(new TxnHeader(1, (int) zxid, zxid, System.currentTimeMillis(), ZooDefs.OpCode.create), made);
    }

    public static void main(String[] arguments) throws Exception {
        FileTxnLog log = new FileTxnLog(new File(arguments[0], "version-2"));
        create(log, arguments[1], "leasefs1 directory 0 1 0 1\n", 1000);
        create(log, arguments[1] + "/left", "", Integer.MAX_VALUE);
        log.commit();
        log.close();
    }
}
