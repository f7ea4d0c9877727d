import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/**
 * Kafka Streams' stream-table join with grace, exactly once, as a peer for the benchmarks: a left join with a versioned
 * store that keeps 10 min; each record waits 5 s in stream time. The output is both values in one JSON object. Prints
 * RUNNING when it processes; SIGTERM ends it.
 *
 * Arguments: bootstrap servers, application id, stream topic, output topic, threads, table topic.
 */
public final class KafkaStreamsJoin {

    public static void main(String[] arguments) throws Exception {
        var bytes = Serdes.ByteArray();
        var builder = new StreamsBuilder();
        var table = builder.table(arguments[5], Consumed.with(bytes, bytes), Materialized.<byte[], byte[]>as(
            Stores.persistentVersionedKeyValueStore("table", Duration.ofMinutes(10))).withKeySerde(bytes).withValueSerde(bytes));
        builder.stream(arguments[2], Consumed.with(bytes, bytes))
            .leftJoin(table, KafkaStreamsJoin::joined,
                Joined.with(bytes, bytes, bytes, "join", Duration.ofSeconds(5)))
            .to(arguments[3], Produced.with(bytes, bytes));

        var streams = new KafkaStreams(builder.build(), settings(arguments));
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.RUNNING || now == KafkaStreams.State.ERROR) {
                System.out.println(now);
            }
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(10))));
        streams.start();
    }

    private static byte[] joined(byte[] stream, byte[] table) {
        var right = table == null ? "null" : new String(table, StandardCharsets.UTF_8);
        return ("{\"stream\":" + new String(stream, StandardCharsets.UTF_8) + ",\"table\":" + right + "}")
            .getBytes(StandardCharsets.UTF_8);
    }

    private static Properties settings(String[] arguments) throws Exception {
        var settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1]);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, arguments[4]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, Files.createTempDirectory("kafka-streams").toString());
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.ByteArraySerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.ByteArraySerde.class);
        settings.put("auto.offset.reset", "earliest");
        return settings;
    }
}
