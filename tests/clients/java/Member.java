import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;

/**
 * A member of a consumer group with Kafka's own client: Member KIND BOOTSTRAP GROUP TOPIC JOURNAL [INSTANCE_ID], where
 * KIND is range, cooperative or consumer (KIP-848). What it does and notes stands in tests/clients/group_member.py.
 */
public final class Member implements ConsumerRebalanceListener {
    private static volatile boolean stopping = false;

    /** Only for commits: poll ends the program if its own thread has no answer for it in default.api.timeout.ms. */
    private static final Duration COMMIT_TIMEOUT = Duration.ofSeconds(5);

    private final FileOutputStream journal;
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final String topic;

    private Member(String[] args) throws IOException {
        journal = new FileOutputStream(args[4], true);
        topic = args[3];
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[1]);
        settings.put("group.id", args[2]);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("reconnect.backoff.max.ms", "300");
        settings.put("request.timeout.ms", "4000");
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        if (args[0].equals("consumer")) {
            settings.put("group.protocol", "consumer");
        } else {
            String name = args[0].equals("cooperative") ? "CooperativeStickyAssignor" : "RangeAssignor";
            settings.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer." + name);
            settings.put("session.timeout.ms", "6000");
            settings.put("heartbeat.interval.ms", "300");
        }
        if (args.length > 5) {
            settings.put("group.instance.id", args[5]);
        }
        consumer = new KafkaConsumer<>(settings);
    }

    public static void main(String[] args) throws Exception {
        Member member = new Member(args);
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            stopping = true;
            member.consumer.wakeup();
            try {
                main.join(20_000);
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
            }
        }));
        member.run();
    }

    private void run() {
        consumer.subscribe(List.of(topic), this);
        try {
            while (!stopping) {
                once();
            }
        } catch (WakeupException error) {
            // Told to leave.
        }
        consumer.close();
    }

    private void once() {
        ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
        Map<TopicPartition, OffsetAndMetadata> due = new HashMap<>();
        for (TopicPartition each : records.partitions()) {
            List<ConsumerRecord<byte[], byte[]>> read = records.records(each);
            long last = read.get(read.size() - 1).offset();
            note("read", String.format(
                "\"partition\": %d, \"first\": %d, \"last\": %d", each.partition(), read.get(0).offset(), last));
            due.put(each, new OffsetAndMetadata(last + 1));
        }
        if (due.isEmpty()) {
            return;
        }
        try {
            consumer.commitSync(due, COMMIT_TIMEOUT);
        } catch (WakeupException error) {
            throw error;
        } catch (KafkaException error) {
            return;
        }
        due.forEach((each, offset) -> note(
            "committed", String.format("\"partition\": %d, \"offset\": %d", each.partition(), offset.offset())));
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        int generation = consumer.groupMetadata().generationId();
        note("assigned", "\"partitions\": " + indexes(partitions) + ", \"generation\": " + generation);
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        note("revoked", "\"partitions\": " + indexes(partitions));
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        note("lost", "\"partitions\": " + indexes(partitions));
    }

    private static String indexes(Collection<TopicPartition> partitions) {
        return partitions.stream().map(each -> String.valueOf(each.partition())).collect(Collectors.joining(", ", "[", "]"));
    }

    private void note(String event, String values) {
        String line = String.format(
            Locale.ROOT, "{\"at\": %.6f, \"event\": \"%s\", %s}%n", System.nanoTime() / 1e9, event, values);
        try {
            journal.write(line.getBytes(StandardCharsets.UTF_8));
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }
}
