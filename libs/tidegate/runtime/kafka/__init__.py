"""The Kafka client: fetches, transactions, offsets, topics, and connection options."""

from tidegate.contracts.extras import require

require("kafka")
