"""Workers in the executors of Spark: the context, its settings, its resources, and the daemon of
its tasks."""
