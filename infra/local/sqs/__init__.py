"""SQS: moto's queues made safe under threads, and the mappings that poll them for functions."""
