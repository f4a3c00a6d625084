package barnabas;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/**
 * The ZooKeeper server under test as a process. The system property `barnabas.zookeeper` is its command, with blanks
 * between the words; `barnabas.zookeeper.log` the file for its output.
 */
public final class ZooKeeperProcess {
    private static final long START_MS = 30_000;
    private final List<String> command;
    private final int port;
    private Process process;

    public ZooKeeperProcess(int port, File dataDir, int tickMs, Map<String, String> settings) {
        this.port = port;
        command = new ArrayList<>(Arrays.asList(System.getProperty("barnabas.zookeeper").split(" ")));
        command.addAll(List.of("--port", "" + port, "--host", "127.0.0.1", "--data-dir", dataDir.getPath()));
        command.addAll(List.of("--tick-time", "" + tickMs));
        settings.forEach((key, value) -> command.addAll(List.of("--set", key + "=" + value)));
    }

    /** Returns a port that nobody listens on, outside the range that the system gives to outgoing connections. */
    public static int freePort() throws IOException {
        for (int i = 0; i < 1000; i++) {
            int port = 20_000 + (int) (Math.random() * 12_000);
            try (ServerSocket socket = new ServerSocket()) {
                socket.bind(new InetSocketAddress("127.0.0.1", port));
                return port;
            } catch (IOException taken) {
                // the next one
            }
        }
        throw new IOException("no free port");
    }

    public int port() {
        return port;
    }

    public void start() throws IOException, InterruptedException {
        File log = new File(System.getProperty("barnabas.zookeeper.log", "/dev/null"));
        process = new ProcessBuilder(command)
            .redirectErrorStream(true)
            .redirectOutput(ProcessBuilder.Redirect.appendTo(log))
            .start();
        long deadline = System.currentTimeMillis() + START_MS;
        while (!answer("srvr", port).startsWith("Zookeeper version")) {
            if (!process.isAlive() || System.currentTimeMillis() > deadline) {
                stop();
                throw new IOException("the server does not start: " + command);
            }
            Thread.sleep(10);
        }
    }

    /** Ends the process as an operator does, by force if it does not end. */
    public void stop() {
        if (process == null) {
            return;
        }
        process.destroy();
        try {
            if (!process.waitFor(10, TimeUnit.SECONDS)) {
                process.destroyForcibly().waitFor();
            }
        } catch (InterruptedException e) {
            process.destroyForcibly();
            Thread.currentThread().interrupt();
        }
        process = null;
    }

    public boolean isAlive() {
        return process != null && process.isAlive();
    }

    /** Returns the answer to a four-letter word, "" if nobody answers. */
    public static String answer(String word, int port) {
        try (Socket socket = new Socket()) {
            socket.connect(new InetSocketAddress("127.0.0.1", port), 2000);
            socket.setSoTimeout(5000);
            socket.getOutputStream().write(word.getBytes(StandardCharsets.US_ASCII));
            socket.getOutputStream().flush();
            try (InputStream in = socket.getInputStream()) {
                return new String(in.readAllBytes(), StandardCharsets.UTF_8);
            }
        } catch (IOException e) {
            return "";
        }
    }
}
