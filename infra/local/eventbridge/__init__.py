"""EventBridge rules, and EventBridge Scheduler, on a clock that tests can advance."""
