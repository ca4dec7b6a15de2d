import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Writes records with Kafka's own producer. Arguments: the bootstrap servers, then four for each topic: its name, a codec, the
 * number of records, and "plain", "transactions" or "streams". Values are unique; some records have no key, some have headers;
 * timestamps are not in order. Every other transaction is aborted. Those of "streams" are 100 ms apart, as Kafka Streams commits,
 * and three of ten are aborted.
 */
public class Writer {
    public static void main(String[] args) throws InterruptedException {
        for (int at = 1; at < args.length; at += 4) {
            write(args[0], args[at], args[at + 1], Integer.parseInt(args[at + 2]), args[at + 3]);
        }
    }

    private static void write(String bootstrap, String topic, String codec, int count, String kind)
        throws InterruptedException {
        boolean transactions = !kind.equals("plain"), streams = kind.equals("streams");
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("compression.type", codec);
        settings.put("linger.ms", "20");
        settings.put("key.serializer", ByteArraySerializer.class.getName());
        settings.put("value.serializer", ByteArraySerializer.class.getName());
        if (transactions) {
            settings.put("transactional.id", topic + codec);
        }
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings)) {
            if (transactions) {
                producer.initTransactions();
            }
            long now = System.currentTimeMillis();
            for (int number = 0; number < count; number++) {
                boolean first = number % 25 == 0, last = number % 25 == 24 || number == count - 1;
                if (transactions && first) {
                    producer.beginTransaction();
                }
                producer.send(record(topic, codec, number, now));
                if (number % 7 == 0) {
                    producer.flush();
                }
                if (transactions && last) {
                    int transaction = number / 25;
                    if (streams ? transaction % 10 % 3 == 1 && transaction % 10 < 8 : transaction % 2 == 1) {
                        producer.flush();
                        producer.abortTransaction();
                    } else {
                        producer.commitTransaction();
                    }
                    Thread.sleep(streams ? 100 : 0);
                }
            }
        }
    }

    private static ProducerRecord<byte[], byte[]> record(String topic, String codec, int number, long now) {
        byte[] key = number % 10 == 3 ? null : bytes("key-" + number % 31);
        byte[] value = bytes((codec + "-" + number + "-").repeat(1 + number % 9));
        List<Header> headers = number % 5 == 0
            ? List.of(new RecordHeader("n", bytes("" + number)), new RecordHeader("none", null))
            : List.of();
        return new ProducerRecord<>(topic, null, now + number * 37 % 1000 - 500, key, value, headers);
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
