"""SQS: patches that make moto's queues thread-safe, and the event source mappings that poll them."""
