"""Pure rules for what lands in the lake: where a file belongs, and how its bytes become rows. No AWS in here."""
