"""The one writer: detects table events, orders them, and appends them to the log in one batch."""
