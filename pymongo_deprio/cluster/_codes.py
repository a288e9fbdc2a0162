"""The server's error codes: their names, and which labels the server puts on which.

Read off a mongod 6.0.5, by failing commands with every code.
"""

from __future__ import annotations

# Codes after which a driver may retry a write or a commit.
RETRYABLE = frozenset({6, 7, 89, 91, 189, 262, 317, 358, 9001, 10107, 11600, 11602, 13435, 13436})

# Codes after which a whole transaction may be run again, wherever in it they occur.
TRANSIENT = frozenset({24, 63, 112, 150, 239, 246, 250, 251, 267, 272, 321, 325})

# Codes of RETRYABLE that say nothing about the transaction they occur in.
NOT_TRANSIENT = frozenset({358})

# Codes after which a change stream must not be resumed.
UNRESUMABLE = frozenset({280, 286})

_NAMES = """
    1=InternalError 2=BadValue 3=OBSOLETE_DuplicateKey 4=NoSuchKey 5=GraphContainsCycle
    6=HostUnreachable 7=HostNotFound 8=UnknownError 9=FailedToParse 10=CannotMutateObject
    11=UserNotFound 12=UnsupportedFormat 13=Unauthorized 14=TypeMismatch 15=Overflow
    16=InvalidLength 17=ProtocolError 18=AuthenticationFailed 19=CannotReuseObject
    20=IllegalOperation 21=EmptyArrayOperation 22=InvalidBSON 23=AlreadyInitialized 24=LockTimeout
    25=RemoteValidationError 26=NamespaceNotFound 27=IndexNotFound 28=PathNotViable
    29=NonExistentPath 30=InvalidPath 31=RoleNotFound 32=RolesNotRelated 33=PrivilegeNotFound
    34=CannotBackfillArray 35=UserModificationFailed 36=RemoteChangeDetected 37=FileRenameFailed
    38=FileNotOpen 39=FileStreamFailed 40=ConflictingUpdateOperators 41=FileAlreadyOpen
    42=LogWriteFailed 43=CursorNotFound 45=UserDataInconsistent 46=LockBusy 47=NoMatchingDocument
    48=NamespaceExists 49=InvalidRoleModification 50=MaxTimeMSExpired
    51=ManualInterventionRequired 52=DollarPrefixedFieldName 53=InvalidIdField
    54=NotSingleValueField 55=InvalidDBRef 56=EmptyFieldName 57=DottedFieldName
    58=RoleModificationFailed 59=CommandNotFound 60=OBSOLETE_DatabaseNotFound 61=ShardKeyNotFound
    62=OplogOperationUnsupported 63=OBSOLETE_StaleShardVersion 64=WriteConcernFailed
    65=MultipleErrorsOccurred 66=ImmutableField 67=CannotCreateIndex 68=IndexAlreadyExists
    69=AuthSchemaIncompatible 70=ShardNotFound 71=ReplicaSetNotFound 72=InvalidOptions
    73=InvalidNamespace 74=NodeNotFound 75=WriteConcernLegacyOK 76=NoReplicationEnabled
    77=OperationIncomplete 78=CommandResultSchemaViolation 79=UnknownReplWriteConcern
    80=RoleDataInconsistent 81=NoMatchParseContext 82=NoProgressMade 83=RemoteResultsUnavailable
    84=OBSOLETE_DuplicateKeyValue 85=IndexOptionsConflict 86=IndexKeySpecsConflict 87=CannotSplit
    88=OBSOLETE_SplitFailed 89=NetworkTimeout 90=CallbackCanceled 91=ShutdownInProgress
    92=SecondaryAheadOfPrimary 93=InvalidReplicaSetConfig 94=NotYetInitialized 95=NotSecondary
    96=OperationFailed 97=NoProjectionFound 98=DBPathInUse 100=UnsatisfiableWriteConcern
    110=CannotInitializeNodeWithData 112=WriteConflict 115=CommandNotSupported
    117=ConflictingOperationInProgress 121=DocumentValidationFailure 125=CommandFailed
    133=FailedToSatisfyReadPreference 134=ReadConcernMajorityNotAvailableYet
    136=CappedPositionLost 150=StaleEpoch 166=CommandNotSupportedOnView
    168=InvalidPipelineOperator 171=CannotIndexParallelArrays 173=TransportSessionNotFound
    175=QueryPlanKilled 189=PrimarySteppedDown 193=NoShardingEnabled 201=CannotBuildIndexKeys
    211=KeyNotFound 215=DatabaseDropPending 222=CloseChangeStream 223=IllegalOpMsgFlag
    225=TransactionTooOld 234=RetryChangeStream 237=CursorKilled 238=NotImplemented
    239=SnapshotTooOld 246=SnapshotUnavailable 249=StaleDbVersion 250=StaleChunkHistory
    251=NoSuchTransaction 252=ReentrancyNotAllowed 253=FreeMonHttpInFlight
    256=TransactionCommitted 257=TransactionTooLarge 262=ExceededTimeLimit
    263=OperationNotSupportedInTransaction 266=FailPointSetFailed
    267=PreparedTransactionInProgress 272=MigrationConflict
    273=ProducerConsumerQueueProducerQueueDepthExceeded 276=IndexBuildAborted
    277=AlarmAlreadyFulfilled 278=UnsatisfiableCommitQuorum 279=ClientDisconnect
    280=ChangeStreamFatalError 282=TransactionCoordinatorReachedAbortDecision
    286=ChangeStreamHistoryLost 290=TransactionExceededLifetimeLimitSeconds
    291=NoQueryExecutionPlans 292=QueryExceededMemoryLimitNoDiskUseAllowed 293=InvalidSeedList
    302=OCSPCertificateStatusUnknown 314=ObjectIsBusy 317=ConnectionPoolExpired
    321=TenantMigrationCommitted 325=TenantMigrationAborted 358=InternalTransactionNotSupported
    391=ReauthenticationRequired 462=IngressRequestRateLimitExceeded 9001=SocketException
    10003=CannotGrowDocumentInCappedNamespace 10107=NotWritablePrimary 10334=BSONObjectTooLarge
    11000=DuplicateKey 11600=InterruptedAtShutdown 11601=Interrupted
    11602=InterruptedDueToReplStateChange 13388=StaleConfig 13435=NotPrimaryNoSecondaryOk
    13436=NotPrimaryOrSecondary
"""

_NAME_OF = {int(code): name for code, _, name in (entry.partition("=") for entry in _NAMES.split())}


def name_of(code: int) -> str:
    """Give the name of an error code, as in the server's replies."""
    return _NAME_OF.get(code, f"Location{code}")
