"""What a candidate takes in bytes and seconds, whether it fits, and its forecast before it is placed."""
