"""The Python interface: an application of operators over Kafka topics, written as a typed program.

It is the same model as the YAML file: each method sets options of an operator, and the configuration types of the
operators check them. This package imports neither Spark nor the operators before they are needed.
"""
