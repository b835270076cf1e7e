"""Workers in the executors of Spark: the context, its settings, what it gives, and the daemon of
its tasks."""
