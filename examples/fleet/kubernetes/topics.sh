#!/bin/bash
# Creates the topics of a fleet that do not exist yet. Run it where Kafka's own scripts are.
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

# Retention: longer than workers may ever be down. The number of partitions cannot change later.
# The brokers' time, so that what waited in gateways during an outage keeps its order.
create "$TOPIC" "$PARTITIONS" cleanup.policy=delete retention.ms=$DAY message.timestamp.type=LogAppendTime
# Only the newest record of a run is kept, for a week.
create "$TOPIC.summaries" "$PARTITIONS" cleanup.policy=compact,delete retention.ms=$((7 * DAY))
# Retention: longer than any run.
create "$TOPIC.decisions" "$PARTITIONS" cleanup.policy=compact,delete retention.ms=$((7 * DAY))
# Retention: until you have looked at them.
create "$TOPIC.dead-letters" 1 cleanup.policy=delete retention.ms=$((30 * DAY))
