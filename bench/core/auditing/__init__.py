"""What the outcome of attacks on a method says about its epsilon: pure statistics, no refits."""
