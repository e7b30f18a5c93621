"""EventBridge: rules and schedules that really fire, on a clock that tests can move."""
