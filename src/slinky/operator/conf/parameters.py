"""The parameters that slurm.conf and slurmdbd.conf can have, as the parsers of Slurm 26.05 themselves know them, and what a word that is none of them was meant to be.

Pure. What must stay true: every word here is one that the real parser takes (a test asks it). One that only a newer Slurm knows can stand in a file that is included: those are Slurm's to judge.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping

from slinky.operator.conf.text import Line

__all__ = ["SLURMDBD_PARAMETERS", "SLURM_PARAMETERS", "unknown"]

_SLURM = """
AccountingStorageBackupHost AccountingStorageEnforce AccountingStorageExternalHost AccountingStorageHost AccountingStorageParameters AccountingStoragePass AccountingStoragePort
AccountingStorageTRES AccountingStorageType AccountingStorageUser AccountingStoreFlags AccountingStoreJobComment AcctGatherEnergyType AcctGatherFilesystemType AcctGatherInfinibandType
AcctGatherInterconnectType AcctGatherNodeFreq AcctGatherProfileType AllowSpecResourcesUsage AuthAltParameters AuthAltTypes AuthInfo AuthType BackupAddr BackupController
BatchStartTimeout BcastExclude BcastParameters BurstBufferParameters BurstBufferType CertgenParameters CertgenType CertmgrParameters CertmgrType CliFilterParameters CliFilterPlugins
ClusterName CommunicationParameters CompleteWait ControlAddr ControlMachine CoreSpecPlugin CpuFreqDef CpuFreqGovernors CredType CryptoType DataParserParameters DebugFlags DefCpuPerGPU
DefMemPerCPU DefMemPerGPU DefMemPerNode DependencyParameters DisableRootJobs DownNodes EioTimeout EnforcePartLimits Epilog EpilogMsgTime EpilogSlurmctld EpilogTimeout ExtSensorsFreq
ExtSensorsType FairShareDampeningFactor FastSchedule FederationParameters FirstJobId GetEnvTimeout GpuFreqDef GresTypes GroupUpdateForce GroupUpdateTime HashPlugin HealthCheckInterval
HealthCheckNodeState HealthCheckProgram HealthCheckTimeout HttpParserType InactiveLimit InteractiveStepOptions JobAcctGatherFrequency JobAcctGatherParams JobAcctGatherType JobCompHost
JobCompLoc JobCompParams JobCompPass JobCompPassScript JobCompPort JobCompType JobCompUser JobContainerType JobCredentialPrivateKey JobCredentialPublicCertificate JobFileAppend
JobRequeue JobSubmitPlugins KeepAliveTime KillOnBadExit KillWait LaunchParameters LaunchType LicenseParameters Licenses LogTimeFormat MCSParameters MCSPlugin MailDomain MailProg
MaxArraySize MaxBatchRequeue MaxDBDMsgs MaxJobCount MaxJobId MaxMemPerCPU MaxMemPerNode MaxNodeCount MaxStepCount MaxTasksPerNode MessageTimeout MetricsAuthUsers MetricsParameters
MetricsType MinJobAge MpiDefault MpiParams NamespaceType NodeFeaturesPlugins NodeName NodeSet OverTimeLimit PartitionName PlugStackConfig PluginDir PowerAction PowerParameters
PowerPlugin PrEpParameters PrEpPlugins PreemptExemptTime PreemptMode PreemptParameters PreemptType PriorityCalcPeriod PriorityDecayHalfLife PriorityFavorSmall PriorityFlags
PriorityMaxAge PriorityParameters PrioritySiteFactorParameters PrioritySiteFactorPlugin PriorityType PriorityUsageResetPeriod PriorityWeightAge PriorityWeightAssoc
PriorityWeightFairshare PriorityWeightJobSize PriorityWeightPartition PriorityWeightQOS PriorityWeightTRES PrivateData ProctrackType Prolog PrologEpilogTimeout PrologFlags
PrologSlurmctld PrologTimeout PropagatePrioProcess PropagateResourceLimits PropagateResourceLimitsExcept RebootProgram ReconfigFlags RequeueExit RequeueExitHold ResumeFailProgram
ResumeProgram ResumeRate ResumeTimeout ResvEpilog ResvOverRun ResvProlog ReturnToService RoutePlugin SallocDefaultCommand SbcastParameters SchedulerParameters SchedulerTimeSlice
SchedulerType ScronParameters SelectType SelectTypeParameters SlurmSchedLogFile SlurmSchedLogLevel SlurmUser SlurmctldAddr SlurmctldDebug SlurmctldHost SlurmctldHttpAuthParameters
SlurmctldLogFile SlurmctldParameters SlurmctldPidFile SlurmctldPort SlurmctldPrimaryOffProg SlurmctldPrimaryOnProg SlurmctldSyslogDebug SlurmctldTimeout SlurmdDebug
SlurmdHttpAuthParameters SlurmdLogFile SlurmdParameters SlurmdPidFile SlurmdPort SlurmdSpoolDir SlurmdSyslogDebug SlurmdTimeout SlurmdUser SrunEpilog SrunPortRange SrunProlog
StateSaveLocation SuspendExcNodes SuspendExcParts SuspendExcStates SuspendProgram SuspendRate SuspendTime SuspendTimeout SwitchParameters SwitchType TCPTimeout TLSParameters TLSType
TaskEpilog TaskPlugin TaskPluginParam TaskProlog TmpFS TopologyParam TopologyPlugin TrackWCKey TreeWidth UnkillableStepProgram UnkillableStepTimeout UrlParserType UsePAM VSizeFactor
WaitTime X11Parameters
"""

_SLURMDBD = """
AllResourcesAbsolute AllowNoDefAcct ArchiveDir ArchiveEvents ArchiveJobEnv ArchiveJobScript ArchiveJobs ArchiveResvs ArchiveScript ArchiveSteps ArchiveSuspend ArchiveTXN ArchiveUsage
AuthAltParameters AuthAltTypes AuthInfo AuthType CommitDelay CommunicationParameters DbdAddr DbdBackupHost DbdHost DbdPort DebugFlags DebugLevel DebugLevelSyslog DefaultQOS
DisableArchiveCommands DisableCoordDBD DisableRollups HashPlugin JobPurge LogFile LogTimeFormat MaxPurgeLimit MaxQueryTimeRange MessageTimeout Parameters PidFile PluginDir PrivateData
PurgeEventAfter PurgeEventMonths PurgeJobAfter PurgeJobEnvAfter PurgeJobMonths PurgeJobScriptAfter PurgeResvAfter PurgeStepAfter PurgeStepMonths PurgeSuspendAfter PurgeSuspendMonths
PurgeTXNAfter PurgeTXNMonths PurgeUsageAfter PurgeUsageMonths SlurmUser StepPurge StorageBackupHost StorageHost StorageLoc StorageParameters StoragePass StoragePassScript StoragePort
StorageType StorageUser TCPTimeout TLSParameters TLSType TrackSlurmctldDown TrackWCKey
"""

SLURM_PARAMETERS: Mapping[str, str] = {word.lower(): word for word in _SLURM.split()}
SLURMDBD_PARAMETERS: Mapping[str, str] = {word.lower(): word for word in _SLURMDBD.split()}


def unknown(lines: Iterable[Line], known: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Each word that is no parameter, with the one that is nearest to it, empty where none is near. Of a line that describes one thing (a partition, a node) only what it describes is looked at."""
    for line in lines:
        for pair in line.pairs[:1]:
            if pair.key.lower() not in known:
                near = difflib.get_close_matches(pair.key.lower(), known, n=1, cutoff=0.8)
                yield pair.key, known[near[0]] if near else ""
