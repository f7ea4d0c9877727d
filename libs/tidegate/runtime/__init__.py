"""Run operators on Spark and Kafka: batch loop, tasks, publishing, configuration, telemetry. Names no operator kind."""
