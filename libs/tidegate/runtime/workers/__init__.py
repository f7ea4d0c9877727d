"""Workers that stay: tasks of long Spark jobs that take the work of all drivers over a connection, one worker per core.

An ordinary Spark job costs a driver 40 ms and more per batch; a message to a worker and back costs less than one.
"""
