package kafka.zk;

import barnabas.ZooKeeperProcess;
import java.io.Closeable;
import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.Map;
import java.util.stream.Stream;

/** The ZooKeeper of Kafka's tests, in place of the class of their jar: the server under test, with an empty tree. */
public class EmbeddedZookeeper implements Closeable {
    private static final int TICK_MS = 800;
    private final File directory;
    private final ZooKeeperProcess server;

    public EmbeddedZookeeper() throws IOException, InterruptedException {
        directory = Files.createTempDirectory("zookeeper-").toFile();
        server = new ZooKeeperProcess(ZooKeeperProcess.freePort(), directory, TICK_MS, Map.of("forceSync", "no"));
        server.start();
    }

    public int port() {
        return server.port();
    }

    public int tickTime() {
        return TICK_MS;
    }

    public void shutdown() throws IOException {
        server.stop();
        if (!directory.exists()) {
            return;
        }
        try (Stream<Path> files = Files.walk(directory.toPath())) {
            files.sorted(Comparator.reverseOrder()).map(Path::toFile).forEach(File::delete);
        }
    }

    @Override
    public void close() throws IOException {
        shutdown();
    }
}
