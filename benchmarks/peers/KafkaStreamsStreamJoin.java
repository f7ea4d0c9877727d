import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.StreamJoined;

/**
 * Kafka Streams' join of two streams, exactly once, as a peer for the benchmarks: pairs of records that are at most
 * 500 ms apart, with a grace of 5 s. The output is both values in one JSON object. Prints RUNNING when it processes;
 * SIGTERM ends it.
 *
 * Arguments: bootstrap servers, application id, left topic, output topic, threads, right topic.
 */
public final class KafkaStreamsStreamJoin {

    public static void main(String[] arguments) throws Exception {
        var bytes = Serdes.ByteArray();
        var builder = new StreamsBuilder();
        var right = builder.stream(arguments[5], Consumed.with(bytes, bytes));
        builder.stream(arguments[2], Consumed.with(bytes, bytes))
            .join(right, KafkaStreamsStreamJoin::joined,
                JoinWindows.ofTimeDifferenceAndGrace(Duration.ofMillis(500), Duration.ofSeconds(5)),
                StreamJoined.with(bytes, bytes, bytes))
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

    private static byte[] joined(byte[] left, byte[] right) {
        return ("{\"left\":" + new String(left, StandardCharsets.UTF_8)
            + ",\"right\":" + new String(right, StandardCharsets.UTF_8) + "}").getBytes(StandardCharsets.UTF_8);
    }

    private static Properties settings(String[] arguments) throws Exception {
        var settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1]);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, arguments[4]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, Files.createTempDirectory("kafka-streams").toString());
        settings.put("auto.offset.reset", "earliest");
        return settings;
    }
}
