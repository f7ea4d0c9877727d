import java.nio.file.Files;
import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.state.Stores;

/**
 * Kafka Streams' suppress, exactly once, as a peer for the benchmarks: the newest update of each key, for at most 5 s
 * and of at most so many keys. With 0 keys nothing is held back; then the table has no cache either, which would hold
 * updates back until the next commit. Prints RUNNING when it processes; SIGTERM ends it.
 *
 * Arguments: bootstrap servers, application id, input topic, output topic, threads, keys.
 */
public final class KafkaStreamsSuppress {

    public static void main(String[] arguments) throws Exception {
        var bytes = Serdes.ByteArray();
        var keys = Long.parseLong(arguments[5]);
        var builder = new StreamsBuilder();
        var table = Materialized.<byte[], byte[]>as(Stores.inMemoryKeyValueStore("table"));
        builder.table(arguments[2], Consumed.with(bytes, bytes), keys == 0 ? table.withCachingDisabled() : table)
            .suppress(Suppressed.untilTimeLimit(Duration.ofSeconds(5), BufferConfig.maxRecords(keys).emitEarlyWhenFull()))
            .toStream()
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
