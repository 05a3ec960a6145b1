/** The public API. What is not exported here may change at any time. */
export { type Bus, busbar, rawJson } from './bus.ts'
export type { BusOptions } from './bus-options.ts'
export type {
  CommitEvent,
  CommitOptions,
  Declared,
  DelayOptions,
  EventHandler,
  EventOf,
  Live,
  ProcessorHandler,
  PublishAllAnswer,
  PublishAllEvent,
  PublishOptions,
  Queue,
  RunOptions,
} from './bus-types.ts'
export type { DeadChoice, DeadFilter, DeadPage, DeadReason, DeadView } from './dead-letters.ts'
export type { Bytes, Duration } from './duration.ts'
export { BusbarError, type ErrorCode } from './errors.ts'
export type { Event } from './event.ts'
export type { Finding, FsckCheck } from './fsck.ts'
export type { WorkerFacts, WorkersFacts } from './group/workers-view.ts'
export type { Overflow, QueueLimits, Rate } from './lanes/limits.ts'
export type { OperationState } from './lanes/operation.ts'
export type { HistoryOptions } from './log/read.ts'
export type { LogView, ReadOptions } from './log/view.ts'
export type { Operation, OperationSummary } from './operations/operation.ts'
export type { OperationCounts, OperationMinute, OperationStats, OperationTimes } from './operations/stats.ts'
export type { TriggerFacts, TriggerOptions, TriggerSecret, TriggersView } from './operations/triggers.ts'
export type { OfOptions, OperationPage, OperationsView, PageOptions } from './operations/view.ts'
export type { WaitOptions } from './operations/wait.ts'
export {
  type OrderedEvent,
  type OrderGuard,
  type OrderGuardOptions,
  type OrderStore,
  type OrderVerdict,
  orderGuard,
  orderVerdict,
} from './order-guard.ts'
export { compilePattern, type Matcher, type Pattern } from './pattern.ts'
export type { Published } from './publish/call.ts'
export type { Delayed, DelayedEvent, DelayedView } from './publish/delayed.ts'
export { type EventDefinition, event } from './registry.ts'
export type { MatchFacts, SubscriptionFacts, SubscriptionsView } from './route/subscriptions.ts'
export type { Clock, Randomness } from './runtime/clock.ts'
export type { TelemetryEvent, TelemetryListener, TelemetryName } from './runtime/telemetry.ts'
export type { Gap, LiveOptions, Since } from './sinks/live/reader.ts'
export type { BatchContext, BatchItem, WorkContext } from './sinks/queue/context.ts'
export type { QueueLetter } from './sinks/queue/dead-view.ts'
export type { Left } from './sinks/queue/drain.ts'
export type { ExtendedItem, HeldLease, SettledItems } from './sinks/queue/held-lease.ts'
export type { ClaimedItem, ClaimedLease, SettleWord } from './sinks/queue/lease.ts'
export type {
  LimitOptions,
  QueueOptions,
  QueueRetry,
  QueueSettings,
  RateOption,
  WorkOptions,
} from './sinks/queue/options.ts'
export type { ParkedQueueObject, QueueParkedView } from './sinks/queue/parked-view.ts'
export type { ClaimOptions, SendOptions } from './sinks/queue/queue.ts'
export type { Sent } from './sinks/queue/sender.ts'
export type { OpenQueue, QueueFacts, QueuesView, TenantFacts } from './sinks/queue/view.ts'
export type { PartitionEvents, TakeOptions } from './sinks/stream/events.ts'
export type { Middleware, OnPoison, ProcessorContext, ProcessorOptions, Retry } from './sinks/stream/options.ts'
export type { ParkedObject, ParkedView } from './sinks/stream/parked-view.ts'
export type { DeadLetter, Reason } from './sinks/stream/set-aside.ts'
export type { PartitionFacts, ResetFacts, ResetTo, StreamFacts, StreamsView } from './sinks/stream/view.ts'
export type { WebhookDeadView, WebhookLetter } from './sinks/webhook/dead-view.ts'
export type { Attempt as WebhookAttempt } from './sinks/webhook/deliver.ts'
export type { Format as WebhookFormat } from './sinks/webhook/format.ts'
export type { BatchOptions, WebhookOptions, WebhookRetry } from './sinks/webhook/options.ts'
export type { Replayed, ReplayOptions } from './sinks/webhook/replay.ts'
export type {
  OpenBatch,
  SealedBatch,
  Tested,
  WebhookBatches,
  WebhookFacts,
  WebhookState,
  WebhooksView,
} from './sinks/webhook/view.ts'
export type { ScheduledEvent } from './tasks/schedule.ts'
export type { Schedule, SchedulesView } from './tasks/schedules.ts'
export type { TaskContext, TaskHandler, TaskOptions } from './tasks/task.ts'
export type { Trace, TracedPlace, TracedState } from './traced.ts'
