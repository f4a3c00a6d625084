"""A Spark data source and sink for Kafka clusters: batches are fetched and decoded here, straight to Arrow."""
