// Drives Kafka's Java client and Kafka's command line tools from one JVM: commands in, answers out, a JSON object a line.
// The commands (create, produce, consume, tool, transact) and their fields are described in tests/clients/drivers.py.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.Exit;

public class Driver {
    private static final ObjectMapper JSON = new ObjectMapper();

    /** What a tool's exit becomes, so that the tool ends and the JVM lives on. */
    private static final class ToolExit extends RuntimeException {
        ToolExit(int code) {
            super("exit " + code, null, false, false);
        }
    }

    /** The code of the first exit: a tool that catches its own exit as a failure exits again with another. */
    private static final AtomicReference<Integer> EXIT_CODE = new AtomicReference<>();

    /** What a tool wants to have run when its JVM ends; the end of the tool takes that place. */
    private static final List<Runnable> HOOKS = new CopyOnWriteArrayList<>();

    private static void exit(int code) {
        EXIT_CODE.compareAndSet(null, code);
        throw new ToolExit(code);
    }

    public static void main(String[] args) throws Exception {
        Exit.setExitProcedure((code, message) -> exit(code));
        Exit.setHaltProcedure((code, message) -> exit(code));
        Exit.setShutdownHookAdder((name, hook) -> HOOKS.add(hook));
        PrintStream answers = System.out;
        System.setOut(System.err);
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = commands.readLine()) != null; ) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                perform(JSON.readTree(line), answer);
            } catch (Throwable failure) {
                Throwable cause = failure.getCause() != null ? failure.getCause() : failure;
                answer.put("error", cause.getClass().getSimpleName() + ": " + cause.getMessage());
                failure.printStackTrace();
            }
            answers.println(JSON.writeValueAsString(answer));
            answers.flush();
        }
    }

    private static void perform(JsonNode command, ObjectNode answer) throws Exception {
        switch (command.get("op").asText()) {
            case "create": create(command); break;
            case "produce": produce(command, answer); break;
            case "consume": consume(command, answer); break;
            case "tool": tool(command, answer); break;
            case "transact": transact(command, answer); break;
            default: throw new IllegalArgumentException("unknown command " + command);
        }
    }

    /** The settings that all clients of a command have. */
    private static Map<String, Object> config(JsonNode command) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", command.get("bootstrap").asText());
        if (command.has("settings")) {
            command.get("settings").fields().forEachRemaining(each -> config.put(each.getKey(), each.getValue().asText()));
        }
        Object url = config.get("sasl.oauthbearer.token.endpoint.url");
        if (url != null) {
            System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", url.toString());
        }
        return config;
    }

    private static void create(JsonNode command) throws Exception {
        NewTopic topic = new NewTopic(command.get("topic").asText(), command.get("partitions").asInt(), (short) 1);
        try (Admin admin = Admin.create(config(command))) {
            admin.createTopics(List.of(topic)).all().get();
        }
    }

    private static void produce(JsonNode command, ObjectNode answer) throws Exception {
        Map<String, Object> config = config(command);
        config.put("compression.type", command.get("codec").asText());
        config.put("linger.ms", 20);
        config.put("delivery.timeout.ms", 120000);
        config.put("request.timeout.ms", 10000);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer =
                 new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (JsonNode record : command.get("records")) {
                Long timestamp = record.get("timestamp").isNull() ? null : record.get("timestamp").asLong();
                ProducerRecord<byte[], byte[]> produced = new ProducerRecord<>(command.get("topic").asText(),
                    record.get("partition").asInt(), timestamp, bytes(record.get("key")), bytes(record.get("value")));
                for (JsonNode header : record.get("headers")) {
                    produced.headers().add(header.get(0).asText(), bytes(header.get(1)));
                }
                sent.add(producer.send(produced));
            }
        }
        ArrayNode offsets = answer.putArray("offsets");
        for (Future<RecordMetadata> each : sent) {
            offsets.add(each.get().offset());
        }
    }

    private static void consume(JsonNode command, ObjectNode answer) {
        Map<String, Object> config = config(command);
        config.put("enable.auto.commit", false);
        config.put("auto.offset.reset", "none");
        TopicPartition partition = new TopicPartition(command.get("topic").asText(), command.get("partition").asInt());
        int count = command.get("count").asInt();
        ArrayNode records = answer.putArray("records");
        try (KafkaConsumer<byte[], byte[]> consumer =
                 new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(List.of(partition));
            if (command.hasNonNull("timestamp")) {
                long timestamp = command.get("timestamp").asLong();
                OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(partition, timestamp)).get(partition);
                if (found == null) {
                    return;
                }
                consumer.seek(partition, found.offset());
            } else {
                consumer.seek(partition, command.get("offset").asLong());
            }
            long deadline = System.nanoTime() + 120_000_000_000L;
            while (records.size() < count && System.nanoTime() < deadline) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                    records.add(describe(record));
                }
            }
        }
    }

    /** Transactions that end at random; the numbers of those that were committed, and what ended it early. */
    private static void transact(JsonNode command, ObjectNode answer) {
        String name = command.get("transactionalId").asText();
        Map<String, Object> config = config(command);
        config.put("transactional.id", name);
        config.put("max.block.ms", 300000);
        config.put("linger.ms", 1);
        String topic = command.get("topic").asText();
        int partitions = command.get("partitions").asInt();
        Random random = new Random(command.get("seed").asLong());
        ArrayNode committed = answer.putArray("committed");
        int number = 0;
        try (KafkaProducer<byte[], byte[]> producer =
                 new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            for (int count = command.get("count").asInt(); number < count; number++) {
                producer.beginTransaction();
                // 0: nothing, aborted; 1: sent and aborted at once; 2: flushed and aborted; otherwise committed.
                int way = random.nextInt(6);
                for (int i = 0; way > 0 && i < 1 + random.nextInt(4); i++) {
                    byte[] value = (name + ":" + number + ":" + i).getBytes(StandardCharsets.UTF_8);
                    producer.send(new ProducerRecord<>(topic, random.nextInt(partitions), null, value));
                }
                if (way == 2) {
                    producer.flush();
                }
                if (way < 3) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                    committed.add(number);
                }
            }
        } catch (KafkaException failure) {
            answer.put("failure", "transaction " + number + ": " + failure);
        }
        answer.put("done", number);
    }

    private static ObjectNode describe(ConsumerRecord<byte[], byte[]> record) {
        ObjectNode node = JSON.createObjectNode();
        node.put("partition", record.partition());
        node.put("offset", record.offset());
        node.put("timestamp", record.timestamp());
        node.put("key", text(record.key()));
        node.put("value", text(record.value()));
        ArrayNode headers = node.putArray("headers");
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(text(header.value()));
        }
        return node;
    }

    private static byte[] bytes(JsonNode node) {
        return node.isNull() ? null : Base64.getDecoder().decode(node.asText());
    }

    private static String text(byte[] data) {
        return data == null ? null : Base64.getEncoder().encodeToString(data);
    }

    /** Runs the main method of a tool with its own standard streams. */
    private static void tool(JsonNode command, ObjectNode answer) throws Exception {
        List<String> arguments = new ArrayList<>();
        command.get("args").forEach(argument -> arguments.add(argument.asText()));
        String[] array = arguments.toArray(new String[0]);
        Class<?> tool = Class.forName(command.get("class").asText());
        InputStream stdin = System.in;
        PrintStream stdout = System.out;
        PrintStream stderr = System.err;
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        PrintStream toolOut = new PrintStream(out, true, StandardCharsets.UTF_8);
        PrintStream toolErr = new PrintStream(err, true, StandardCharsets.UTF_8);
        System.setIn(new ByteArrayInputStream(command.get("stdin").asText().getBytes(StandardCharsets.UTF_8)));
        System.setOut(toolOut);
        System.setErr(toolErr);
        int code = 0;
        EXIT_CODE.set(null);
        HOOKS.clear();
        try {
            scala.Console.withOut(toolOut, () -> scala.Console.withErr(toolErr, () -> {
                try {
                    tool.getMethod("main", String[].class).invoke(null, (Object) array);
                } catch (java.lang.reflect.InvocationTargetException failure) {
                    sneak(failure.getCause());
                } catch (ReflectiveOperationException failure) {
                    throw new IllegalStateException(failure);
                }
                return null;
            }));
        } catch (ToolExit exit) {
            code = EXIT_CODE.get();
        } catch (Throwable failure) {
            failure.printStackTrace(toolErr);
            code = 1;
        } finally {
            HOOKS.forEach(Runnable::run);
            System.setIn(stdin);
            System.setOut(stdout);
            System.setErr(stderr);
        }
        answer.put("code", code);
        answer.put("out", out.toString(StandardCharsets.UTF_8));
        answer.put("err", err.toString(StandardCharsets.UTF_8));
    }

    @SuppressWarnings("unchecked")
    private static <T extends Throwable> void sneak(Throwable failure) throws T {
        throw (T) failure;
    }
}
