"""Finding Java, and downloading the jars of Spark and of the Kafka broker."""
