#!/bin/bash
# The topics of a fleet, where they are not there yet. To be run where Kafka's own scripts are.
#
#   BROKERS=kafka:9092 TOPIC=agents PARTITIONS=8 REPLICAS=3 IN_SYNC=2 bash topics.sh
#
# CLIENT_CONFIG, if it is set, is a properties file for kafka-topics.sh: SASL, TLS.
set -euo pipefail

HOUR=3600000 # milliseconds
DAY=$((24 * HOUR))

create() { # NAME PARTITIONS CONFIG...
  local name=$1 partitions=$2 config=()
  shift 2
  for each in "min.insync.replicas=$IN_SYNC" "$@"; do
    config+=(--config "$each")
  done
  /opt/kafka/bin/kafka-topics.sh --bootstrap-server "$BROKERS" \
    ${CLIENT_CONFIG:+--command-config "$CLIENT_CONFIG"} \
    --create --if-not-exists --topic "$name" \
    --partitions "$partitions" --replication-factor "$REPLICAS" "${config[@]}"
}

# Longer than workers may ever be away. Its partitions cannot be changed later.
create "$TOPIC" "$PARTITIONS" cleanup.policy=delete retention.ms=$DAY
# The newest of a run is kept, and not for ever.
create "$TOPIC.summaries" "$PARTITIONS" cleanup.policy=compact,delete retention.ms=$((7 * DAY))
# Longer than any run.
create "$TOPIC.decisions" "$PARTITIONS" cleanup.policy=compact,delete retention.ms=$((7 * DAY))
# Until somebody has looked.
create "$TOPIC.dead-letters" 1 cleanup.policy=delete retention.ms=$((30 * DAY))
