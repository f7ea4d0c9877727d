"""Contracts that all layers share: records, event time, configurations, schemas, errors."""
