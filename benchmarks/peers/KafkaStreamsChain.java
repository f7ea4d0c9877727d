import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.WindowedSerdes;
import org.apache.kafka.streams.state.Stores;

/**
 * KIP-328's example in Kafka Streams, exactly once, as a peer for the benchmarks: counts in 10 s windows with 5 s grace,
 * suppressed until the window closes, and of these the counts below 10. The store is in memory and has no cache: a cache
 * hands on the updates of a commit by key, so that the suppression would see time jump ahead of updates that it has not
 * seen. Keys have their window in Kafka's format. Prints RUNNING when it processes; SIGTERM ends it.
 *
 * Arguments: bootstrap servers, application id, input topic, output topic, threads.
 */
public final class KafkaStreamsChain {

    public static void main(String[] arguments) throws Exception {
        var bytes = Serdes.ByteArray();
        var size = Duration.ofSeconds(10);
        var grace = Duration.ofSeconds(5);
        var builder = new StreamsBuilder();
        builder.stream(arguments[2], Consumed.with(bytes, bytes))
            .groupByKey(Grouped.with(bytes, bytes))
            .windowedBy(TimeWindows.ofSizeAndGrace(size, grace))
            .count(Materialized.<byte[], Long>as(Stores.inMemoryWindowStore("counts", size.plus(grace), size, false))
                .withKeySerde(bytes).withValueSerde(Serdes.Long()).withCachingDisabled())
            .suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded()))
            .toStream()
            .filter((window, count) -> count < 10)
            .mapValues(count -> Long.toString(count).getBytes(StandardCharsets.UTF_8))
            .to(arguments[3], Produced.with(new WindowedSerdes.TimeWindowedSerde<>(bytes, size.toMillis()), bytes));

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
