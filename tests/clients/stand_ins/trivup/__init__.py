"""The part of trivup that the tests of confluent-kafka-python use."""
