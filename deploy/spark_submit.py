"""What ``spark-submit`` runs: the same command line as ``millwheel run``, on the Spark it was
submitted to.

    spark-submit --master spark://HOST:7077 --py-files build/millwheel.zip \
        deploy/spark_submit.py PIPELINE.yaml --set input=… --set output=… --root /shared/ads
        --workers 2
"""

from millwheel.tools.cli.run import main

if __name__ == "__main__":
    main()
