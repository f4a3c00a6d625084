import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * One link of a consume-transform-produce chain: Chain KIND BOOTSTRAP NAME HISTORY, where KIND is the group's protocol,
 * classic or consumer. What it does and notes stands in tests/clients/chain.py.
 */
public final class Chain {
    private static final long OPEN_MS = 20;
    private static volatile boolean stopping = false;
    private static volatile KafkaConsumer<String, String> reading = null;

    private final String[] arguments;
    private final FileOutputStream history;
    private String process = "";

    private Chain(String[] args) throws IOException {
        arguments = args;
        history = new FileOutputStream(args[3], true);
    }

    public static void main(String[] args) throws Exception {
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            stopping = true;
            KafkaConsumer<String, String> consumer = reading;
            if (consumer != null) {
                consumer.wakeup();
            }
            try {
                main.join(25_000);
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
            }
        }));
        Chain chain = new Chain(args);
        for (int number = 1; !stopping; number++) {
            chain.process = args[2] + ":" + ProcessHandle.current().pid() + ":" + number;
            try {
                chain.untilItFails();
            } catch (WakeupException error) {
                // Told to end.
            } catch (KafkaException error) {
                System.err.println(chain.process + " " + error);
            }
        }
    }

    private void untilItFails() throws InterruptedException {
        Properties common = new Properties();
        common.put("bootstrap.servers", arguments[1]);
        common.put("reconnect.backoff.max.ms", "300");
        common.put("request.timeout.ms", "5000");
        Properties writing = new Properties();
        writing.putAll(common);
        writing.put("transactional.id", arguments[2]);
        writing.put("transaction.timeout.ms", "20000");
        writing.put("delivery.timeout.ms", "20000");
        writing.put("max.block.ms", "20000");
        Properties settings = new Properties();
        settings.putAll(common);
        settings.put("group.id", "chain");
        settings.put("group.protocol", arguments[0]);
        settings.put("isolation.level", "read_committed");
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("max.poll.records", "20");
        if (arguments[0].equals("classic")) {
            settings.put("session.timeout.ms", "6000");
        }
        KafkaProducer<String, String> producer =
            new KafkaProducer<>(writing, new StringSerializer(), new StringSerializer());
        try (KafkaConsumer<String, String> consumer =
                 new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            reading = consumer;
            retried(producer::initTransactions);
            consumer.subscribe(List.of("input"));
            for (int serial = 1; !stopping; serial++) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                if (!records.isEmpty()) {
                    transform(producer, consumer, records, "@" + process + ":" + serial);
                }
            }
        } finally {
            reading = null;
            producer.close(Duration.ofSeconds(5));
        }
    }

    private void transform(
        KafkaProducer<String, String> producer,
        KafkaConsumer<String, String> consumer,
        ConsumerRecords<String, String> records,
        String mark
    ) throws InterruptedException {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        producer.beginTransaction();
        note("ok", "begin", "");
        try {
            for (ConsumerRecord<String, String> record : records) {
                offsets.put(
                    new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
                send(producer, record.partition(), record.value() + mark);
            }
            Thread.sleep(OPEN_MS);
            producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
            note("invoke", "commit", "");
            retried(producer::commitTransaction);
            note("ok", "commit", "");
        } catch (ProducerFencedException | InvalidProducerEpochException error) {
            throw error;
        } catch (KafkaException error) {
            note("invoke", "abort", "");
            retried(producer::abortTransaction);
            note("ok", "abort", "");
            throw error;
        }
    }

    private void send(KafkaProducer<String, String> producer, int partition, String value) {
        String what = String.format(", \"topic\": \"output\", \"partition\": %d, \"value\": \"%s\"", partition, value);
        note("invoke", "send", what);
        producer.send(new ProducerRecord<>("output", partition, null, value), (written, error) -> {
            if (error == null) {
                note("ok", "send", what + ", \"offset\": " + written.offset());
            } else {
                note("info", "send", what);
            }
        });
    }

    /** What timed out may be asked for again, and nothing else may. */
    private static void retried(Runnable step) {
        for (int attempt = 1; ; attempt++) {
            try {
                step.run();
                return;
            } catch (TimeoutException error) {
                if (attempt == 5) {
                    throw error;
                }
            }
        }
    }

    private synchronized void note(String type, String f, String more) {
        long time = ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
        String line = String.format(
            "{\"time\": %d, \"process\": \"%s\", \"type\": \"%s\", \"f\": \"%s\"%s}%n", time, process, type, f, more);
        try {
            history.write(line.getBytes(StandardCharsets.UTF_8));
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }
}
