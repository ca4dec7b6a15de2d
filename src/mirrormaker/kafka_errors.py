"""Kafka's error codes: their names, what they mean to a mirror, whether trying again may help, and how far each one reaches.

A new code needs one line here. Names and numbers are Kafka's own (`org.apache.kafka.common.protocol.Errors`). A code that is not in
the table is treated as UNKNOWN_SERVER_ERROR: not retriable, and the trouble of one partition.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Scope(IntEnum):
    """How far an error reaches, from a single record to the whole process."""

    RECORD = 0
    PARTITION = 1
    TOPIC = 2
    SOURCE = 3
    PROCESS = 4


class ErrorCode(NamedTuple):
    """One of Kafka's error codes."""

    code: int
    name: str
    retriable: bool
    scope: Scope
    words: str


_R, _P, _T, _S = Scope.RECORD, Scope.PARTITION, Scope.TOPIC, Scope.SOURCE

_TABLE = (
    (-1, "UNKNOWN_SERVER_ERROR", False, _P, "the broker failed for a reason that it does not name"),
    (1, "OFFSET_OUT_OF_RANGE", False, _P, "the broker no longer has this offset, or does not have it yet"),
    (2, "CORRUPT_MESSAGE", True, _R, "a batch does not match its checksum, or is malformed"),
    (3, "UNKNOWN_TOPIC_OR_PARTITION", True, _T, "the broker does not know the topic or partition"),
    (4, "INVALID_FETCH_SIZE", False, _P, "the requested fetch size is invalid"),
    (5, "LEADER_NOT_AVAILABLE", True, _P, "the partition has no leader"),
    (6, "NOT_LEADER_OR_FOLLOWER", True, _P, "the broker no longer leads the partition"),
    (7, "REQUEST_TIMED_OUT", True, _P, "the broker ran out of time"),
    (8, "BROKER_NOT_AVAILABLE", False, _P, "the broker is not available"),
    (9, "REPLICA_NOT_AVAILABLE", True, _P, "the replica is not available"),
    (10, "MESSAGE_TOO_LARGE", False, _R, "the batch is larger than the topic's max.message.bytes"),
    (11, "STALE_CONTROLLER_EPOCH", False, _S, "the controller moved to another broker"),
    (12, "OFFSET_METADATA_TOO_LARGE", False, _P, "the metadata is larger than the broker's offset.metadata.max.bytes"),
    (13, "NETWORK_EXCEPTION", True, _P, "the broker hung up before it answered"),
    (14, "COORDINATOR_LOAD_IN_PROGRESS", True, _S, "the coordinator is still loading"),
    (15, "COORDINATOR_NOT_AVAILABLE", True, _S, "the coordinator is not available"),
    (16, "NOT_COORDINATOR", True, _S, "another broker is the coordinator by now"),
    (17, "INVALID_TOPIC_EXCEPTION", False, _T, "the topic's name is not allowed, or the topic may not be written"),
    (18, "RECORD_LIST_TOO_LARGE", False, _R, "the batch is larger than a segment of the topic"),
    (19, "NOT_ENOUGH_REPLICAS", True, _P, "the partition has fewer in-sync replicas than min.insync.replicas"),
    (20, "NOT_ENOUGH_REPLICAS_AFTER_APPEND", True, _P, "the batch was appended, but not to enough in-sync replicas"),
    (21, "INVALID_REQUIRED_ACKS", False, _T, "the value of acks is not allowed"),
    (22, "ILLEGAL_GENERATION", False, _S, "the group's generation has passed"),
    (23, "INCONSISTENT_GROUP_PROTOCOL", False, _S, "the group's other members use another protocol"),
    (24, "INVALID_GROUP_ID", False, _S, "the group id is not allowed"),
    (25, "UNKNOWN_MEMBER_ID", False, _S, "the coordinator does not know this member"),
    (26, "INVALID_SESSION_TIMEOUT", False, _S, "the session timeout is outside of what the broker allows"),
    (27, "REBALANCE_IN_PROGRESS", False, _S, "the group is rebalancing"),
    (28, "INVALID_COMMIT_OFFSET_SIZE", False, _P, "the commit is larger than the offsets topic takes"),
    (29, "TOPIC_AUTHORIZATION_FAILED", False, _T, "this client has no permission on the topic"),
    (30, "GROUP_AUTHORIZATION_FAILED", False, _S, "this client has no permission on the group"),
    (31, "CLUSTER_AUTHORIZATION_FAILED", False, _S, "this client has no permission on the cluster"),
    (32, "INVALID_TIMESTAMP", False, _R, "a record's timestamp is outside of what the topic allows"),
    (33, "UNSUPPORTED_SASL_MECHANISM", False, _S, "the broker does not offer the SASL mechanism"),
    (34, "ILLEGAL_SASL_STATE", False, _S, "the request is not allowed in this state of the login"),
    (35, "UNSUPPORTED_VERSION", False, _S, "the broker does not know this version of the request"),
    (36, "TOPIC_ALREADY_EXISTS", False, _T, "the topic exists already"),
    (37, "INVALID_PARTITIONS", False, _T, "the number of partitions is not allowed"),
    (
        38,
        "INVALID_REPLICATION_FACTOR",
        False,
        _T,
        "the replication factor is larger than the number of brokers, or below 1",
    ),
    (39, "INVALID_REPLICA_ASSIGNMENT", False, _T, "the replica assignment is not allowed"),
    (40, "INVALID_CONFIG", False, _T, "a topic setting is not allowed"),
    (41, "NOT_CONTROLLER", True, _S, "another broker is the controller by now"),
    (42, "INVALID_REQUEST", False, _R, "the broker cannot make sense of the request"),
    (43, "UNSUPPORTED_FOR_MESSAGE_FORMAT", False, _T, "the topic's message format is too old for this request"),
    (44, "POLICY_VIOLATION", False, _T, "the cluster's policy forbids it"),
    (45, "OUT_OF_ORDER_SEQUENCE_NUMBER", False, _P, "the sequence number is not the next one of its producer"),
    (46, "DUPLICATE_SEQUENCE_NUMBER", False, _P, "the sequence number was used before"),
    (47, "INVALID_PRODUCER_EPOCH", False, _P, "the producer's epoch is too old"),
    (48, "INVALID_TXN_STATE", False, _P, "the transaction is not in a state for this request"),
    (49, "INVALID_PRODUCER_ID_MAPPING", False, _P, "the producer id does not belong to the transactional id"),
    (50, "INVALID_TRANSACTION_TIMEOUT", False, _S, "the transaction timeout is larger than the broker allows"),
    (51, "CONCURRENT_TRANSACTIONS", True, _P, "another transaction of the producer is still open"),
    (52, "TRANSACTION_COORDINATOR_FENCED", False, _S, "the transaction coordinator was replaced"),
    (53, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", False, _S, "this client has no permission on the transactional id"),
    (54, "SECURITY_DISABLED", False, _S, "security is switched off on the cluster"),
    (55, "OPERATION_NOT_ATTEMPTED", True, _P, "the broker did not try, because another part of the request failed"),
    (56, "KAFKA_STORAGE_ERROR", True, _P, "the broker cannot use the disk of the partition"),
    (57, "LOG_DIR_NOT_FOUND", False, _S, "the broker has no such log directory"),
    (58, "SASL_AUTHENTICATION_FAILED", False, _S, "the broker refuses the login"),
    (59, "UNKNOWN_PRODUCER_ID", False, _P, "the broker has forgotten the producer"),
    (60, "REASSIGNMENT_IN_PROGRESS", False, _T, "the topic's partitions are being reassigned"),
    (61, "DELEGATION_TOKEN_AUTH_DISABLED", False, _S, "delegation tokens are switched off"),
    (62, "DELEGATION_TOKEN_NOT_FOUND", False, _S, "the delegation token does not exist"),
    (63, "DELEGATION_TOKEN_OWNER_MISMATCH", False, _S, "the delegation token belongs to another principal"),
    (64, "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED", False, _S, "this connection may not ask for delegation tokens"),
    (65, "DELEGATION_TOKEN_AUTHORIZATION_FAILED", False, _S, "this client has no permission on the delegation token"),
    (66, "DELEGATION_TOKEN_EXPIRED", False, _S, "the delegation token has expired"),
    (67, "INVALID_PRINCIPAL_TYPE", False, _S, "the principal type is not supported"),
    (68, "NON_EMPTY_GROUP", False, _S, "the group has members"),
    (69, "GROUP_ID_NOT_FOUND", False, _S, "the group does not exist"),
    (70, "FETCH_SESSION_ID_NOT_FOUND", True, _P, "the broker has dropped the fetch session"),
    (71, "INVALID_FETCH_SESSION_EPOCH", True, _P, "the fetch session is out of step"),
    (72, "LISTENER_NOT_FOUND", True, _P, "the leader has no listener for this client"),
    (73, "TOPIC_DELETION_DISABLED", False, _T, "topics cannot be deleted on the cluster"),
    (74, "FENCED_LEADER_EPOCH", True, _P, "the partition has a newer leader"),
    (75, "UNKNOWN_LEADER_EPOCH", True, _P, "the broker does not know of the partition's newer leader yet"),
    (76, "UNSUPPORTED_COMPRESSION_TYPE", False, _T, "the broker does not know the compression codec"),
    (77, "STALE_BROKER_EPOCH", False, _S, "the broker was restarted"),
    (78, "OFFSET_NOT_AVAILABLE", True, _P, "a new leader does not know the high watermark yet"),
    (79, "MEMBER_ID_REQUIRED", False, _S, "the member has to join again with the id that it was given"),
    (80, "PREFERRED_LEADER_NOT_AVAILABLE", True, _P, "the preferred leader is not available"),
    (81, "GROUP_MAX_SIZE_REACHED", False, _S, "the group has as many members as the broker allows"),
    (82, "FENCED_INSTANCE_ID", False, _S, "another process uses the same group.instance.id"),
    (83, "ELIGIBLE_LEADERS_NOT_AVAILABLE", True, _P, "no replica may become the leader"),
    (84, "ELECTION_NOT_NEEDED", True, _P, "the partition has the leader already"),
    (85, "NO_REASSIGNMENT_IN_PROGRESS", False, _T, "no reassignment is under way"),
    (86, "GROUP_SUBSCRIBED_TO_TOPIC", False, _T, "a group is subscribed to the topic"),
    (87, "INVALID_RECORD", False, _R, "the broker refuses a record"),
    (88, "UNSTABLE_OFFSET_COMMIT", True, _P, "a transaction holds the offset"),
    (89, "THROTTLING_QUOTA_EXCEEDED", True, _S, "the quota is used up"),
    (90, "PRODUCER_FENCED", False, _P, "a newer producer took over"),
    (91, "RESOURCE_NOT_FOUND", False, _S, "the resource does not exist"),
    (92, "DUPLICATE_RESOURCE", False, _S, "the resource exists already"),
    (93, "UNACCEPTABLE_CREDENTIAL", False, _S, "the credential is not acceptable"),
    (94, "INCONSISTENT_VOTER_SET", False, _S, "the voters do not agree"),
    (95, "INVALID_UPDATE_VERSION", False, _S, "the update has the wrong version"),
    (96, "FEATURE_UPDATE_FAILED", False, _S, "a feature cannot be updated"),
    (97, "PRINCIPAL_DESERIALIZATION_FAILURE", False, _S, "the controller cannot read the forwarded principal"),
    (98, "SNAPSHOT_NOT_FOUND", False, _S, "the snapshot does not exist"),
    (99, "POSITION_OUT_OF_RANGE", False, _S, "the position is outside of the snapshot"),
    (100, "UNKNOWN_TOPIC_ID", True, _T, "the broker does not know the topic's id"),
    (101, "DUPLICATE_BROKER_REGISTRATION", False, _S, "the broker id is in use"),
    (102, "BROKER_ID_NOT_REGISTERED", False, _S, "the broker id is not registered"),
    (103, "INCONSISTENT_TOPIC_ID", True, _T, "the topic has another id on the broker"),
    (104, "INCONSISTENT_CLUSTER_ID", False, _S, "the request is for another cluster"),
    (105, "TRANSACTIONAL_ID_NOT_FOUND", False, _S, "the transactional id does not exist"),
    (106, "FETCH_SESSION_TOPIC_ID_ERROR", True, _P, "the fetch session mixes topic ids and names"),
    (107, "INELIGIBLE_REPLICA", False, _P, "the replica may not join the in-sync replicas"),
    (108, "NEW_LEADER_ELECTED", False, _P, "the partition has a new leader"),
    (109, "OFFSET_MOVED_TO_TIERED_STORAGE", False, _P, "the offset is in tiered storage"),
    (110, "FENCED_MEMBER_EPOCH", False, _S, "the member's epoch was fenced by the coordinator"),
    (111, "UNRELEASED_INSTANCE_ID", False, _S, "another member still uses the group.instance.id"),
    (112, "UNSUPPORTED_ASSIGNOR", False, _S, "the group has no such assignor"),
    (113, "STALE_MEMBER_EPOCH", True, _S, "the member's epoch is too old"),
    (114, "MISMATCHED_ENDPOINT_TYPE", False, _S, "the request went to the wrong kind of listener"),
    (115, "UNSUPPORTED_ENDPOINT_TYPE", False, _S, "the kind of listener is not supported"),
    (116, "UNKNOWN_CONTROLLER_ID", False, _S, "the controller id is not known"),
    (117, "UNKNOWN_SUBSCRIPTION_ID", False, _S, "the telemetry subscription is not known"),
    (118, "TELEMETRY_TOO_LARGE", False, _S, "the telemetry data is too large"),
    (119, "INVALID_REGISTRATION", False, _S, "the controller refuses the broker's registration"),
    (120, "TRANSACTION_ABORTABLE", False, _P, "the transaction must be aborted"),
    (121, "INVALID_RECORD_STATE", False, _P, "the record is not in a state for this request"),
    (122, "SHARE_SESSION_NOT_FOUND", True, _P, "the broker has dropped the share session"),
    (123, "INVALID_SHARE_SESSION_EPOCH", True, _P, "the share session is out of step"),
    (124, "FENCED_STATE_EPOCH", False, _P, "the share coordinator has a newer state"),
    (125, "INVALID_VOTER_KEY", False, _S, "the voter's key is not right"),
    (126, "DUPLICATE_VOTER", False, _S, "the voter is there already"),
    (127, "VOTER_NOT_FOUND", False, _S, "the voter does not exist"),
    (128, "INVALID_REGULAR_EXPRESSION", False, _S, "the regular expression is not valid"),
    (129, "REBOOTSTRAP_REQUIRED", False, _S, "the client has to start again from its bootstrap servers"),
    (130, "STREAMS_INVALID_TOPOLOGY", False, _S, "the streams topology is not valid"),
    (131, "STREAMS_INVALID_TOPOLOGY_EPOCH", False, _S, "the streams topology has an invalid epoch"),
    (132, "STREAMS_TOPOLOGY_FENCED", False, _S, "the streams topology is too old"),
    (133, "SHARE_SESSION_LIMIT_REACHED", True, _P, "the broker has as many share sessions as it allows"),
)

CODES = {row[0]: ErrorCode(*row) for row in _TABLE}

# Codes that the program decides on. A module that compares an answer's code with a number imports the name from here.
UNKNOWN_SERVER_ERROR = -1
OFFSET_OUT_OF_RANGE = 1
CORRUPT_MESSAGE = 2
UNKNOWN_TOPIC_OR_PARTITION = 3
LEADER_NOT_AVAILABLE = 5
NOT_LEADER_OR_FOLLOWER = 6
REQUEST_TIMED_OUT = 7
MESSAGE_TOO_LARGE = 10
OFFSET_METADATA_TOO_LARGE = 12
COORDINATOR_LOAD_IN_PROGRESS = 14
COORDINATOR_NOT_AVAILABLE = 15
NOT_COORDINATOR = 16
NOT_ENOUGH_REPLICAS = 19
NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
ILLEGAL_GENERATION = 22
UNKNOWN_MEMBER_ID = 25
REBALANCE_IN_PROGRESS = 27
INVALID_COMMIT_OFFSET_SIZE = 28
TOPIC_AUTHORIZATION_FAILED = 29
GROUP_AUTHORIZATION_FAILED = 30
CLUSTER_AUTHORIZATION_FAILED = 31
UNSUPPORTED_SASL_MECHANISM = 33
ILLEGAL_SASL_STATE = 34
TOPIC_ALREADY_EXISTS = 36
INVALID_PARTITIONS = 37
INVALID_CONFIG = 40
NOT_CONTROLLER = 41
UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
DUPLICATE_SEQUENCE_NUMBER = 46
INVALID_PRODUCER_EPOCH = 47
UNKNOWN_PRODUCER_ID = 59
NON_EMPTY_GROUP = 68
GROUP_ID_NOT_FOUND = 69
FETCH_SESSION_ID_NOT_FOUND = 70
INVALID_FETCH_SESSION_EPOCH = 71
MEMBER_ID_REQUIRED = 79
FENCED_INSTANCE_ID = 82
UNSTABLE_OFFSET_COMMIT = 88
FETCH_SESSION_TOPIC_ID_ERROR = 106


def error_code(code: int) -> ErrorCode:
    """Return what is known of a code; an unknown one counts as UNKNOWN_SERVER_ERROR with its own number."""
    return CODES.get(code) or CODES[-1]._replace(code=code, name="UNKNOWN_ERROR_CODE")
