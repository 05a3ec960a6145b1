/**
 * The bus: a noun declares, a verb attaches, `run()` starts.
 *
 *   made       declarations write and start nothing; the first publish, read or live reader connects
 *   running    after run(): background work of this process goes on
 *   closed     what was accepted is answered, then everything is let go; nothing keeps the process alive
 */
import { hostname } from 'node:os'
import { Backbone } from './backbone.ts'
import { type BusInternals, busMark, internals } from './bus-internals.ts'
import { type BusOptions, checkOptions, type Settings } from './bus-options.ts'
import type {
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
  TypeName,
} from './bus-types.ts'
import { Consuming } from './consuming.ts'
import { checkDeclared } from './declared.ts'
import { type Duration, durationOf } from './duration.ts'
import { BusbarError } from './errors.ts'
import { defaultTenant, type Event, limits, RawJson } from './event.ts'
import { checkTenant, checkText } from './event-checks.ts'
import { type Finding, fsck } from './fsck.ts'
import { type About, readWorkers, type WorkersFacts } from './group/workers-view.ts'
import { readState, readTopics } from './log/read.ts'
import type { Retainer } from './log/retention.ts'
import { createLogView, type LogView } from './log/view.ts'
import { memoryDuty } from './memory-guard.ts'
import { traceEvent } from './operations/trace.ts'
import type { TriggersView } from './operations/triggers.ts'
import type { OperationsView } from './operations/view.ts'
import type { Pattern } from './pattern.ts'
import type { Published } from './publish/call.ts'
import type { Delayed, DelayedView } from './publish/delayed.ts'
import { writeEvent } from './publish/written-event.ts'
import { Publishing } from './publishing.ts'
import type { DataIn, Registry } from './registry.ts'
import type { SubscriptionsView } from './route/subscriptions.ts'
import type { Handling } from './runtime/handling.ts'
import { type Loop, startLoop } from './runtime/loop.ts'
import type { Telemetry } from './runtime/telemetry.ts'
import type { LiveOptions } from './sinks/live/reader.ts'
import type { Left } from './sinks/queue/drain.ts'
import { checkDrawn, checkWork, type Drawn, type QueueOptions, type WorkOptions } from './sinks/queue/options.ts'
import { sweepDuty } from './sinks/queue/sweep.ts'
import type { QueuesView } from './sinks/queue/view.ts'
import type { BatchHandler, QueueHandler } from './sinks/queue/worker.ts'
import type { ProcessorOptions } from './sinks/stream/options.ts'
import { createStreamsView, type StreamsView } from './sinks/stream/view.ts'
import type { WebhookOptions } from './sinks/webhook/options.ts'
import type { WebhooksView } from './sinks/webhook/view.ts'
import { checkScheduled, type ScheduledEvent } from './tasks/schedule.ts'
import type { SchedulesView } from './tasks/schedules.ts'
import type { TaskHandler, TaskOptions } from './tasks/task.ts'
import { Worker } from './tasks/worker.ts'
import type { Trace } from './traced.ts'
import { checkKnown } from './unknown-name.ts'
import { version } from './version.ts'

const noOptions = {}
const knownOfLive = new Set<keyof LiveOptions>(['since', 'onGap', 'signal'])
const knownOfRun = new Set<keyof RunOptions>(['only', 'signals', 'role'])
const endSignals = ['SIGTERM', 'SIGINT'] as const
const retentionLoopMs = 10_000
const closeTimeoutMs = 10_000

export class Bus<R extends Registry = Registry> {
  readonly [busMark] = true
  readonly namespace: string
  /** What this process is called where several share work. */
  readonly worker: string
  readonly telemetry: Telemetry
  /** Reads what is stored. */
  readonly log: LogView
  /** Processors of the namespace, whoever runs them. */
  readonly streams: StreamsView
  /** Queues of the namespace, whoever declared them. */
  readonly queues: QueuesView
  /** Webhooks of the namespace, whoever declared them. */
  readonly webhooks: WebhooksView
  /** What became of the items of tracked queues, whoever declared them. */
  readonly operations: OperationsView
  /** URLs that start operations. */
  readonly triggers: TriggersView
  /** Subscriptions of the namespace, whoever declared them. */
  readonly subscriptions: SubscriptionsView
  /** What is stored of schedules, whoever declared them. */
  readonly schedules: SchedulesView
  /** Delayed events that are not due yet. */
  readonly delayed: DelayedView
  readonly #settings: Settings
  readonly #backbone: Backbone
  readonly #publishing: Publishing
  readonly #worker: Worker
  readonly #consuming: Consuming
  readonly #handling = new Set<Handling>()
  #loops: Loop[] = []
  #running: Promise<this> | undefined
  #closing: Promise<void> | undefined

  constructor(options: BusOptions<R>) {
    const settings = checkOptions(options)
    this.#settings = settings
    this.namespace = settings.namespace.name
    this.worker = settings.worker
    this.telemetry = settings.telemetry
    this.#backbone = new Backbone(settings)
    const publishing = new Publishing(settings, this.#backbone, {
      takeNext: (partition, records) => this.#consuming.takeNext(partition, records),
      stored: (partition, hint) => this.#consuming.heard(partition, hint),
    })
    this.#publishing = publishing
    this.log = createLogView(this.#backbone)
    this.streams = createStreamsView(this.#backbone, settings)
    this.delayed = publishing.delayer
    this.#worker = new Worker({
      ...{ ...settings, source: this.#backbone, publishing },
      duties: {
        'leader.queues': ({ namespace, reads }) =>
          sweepDuty({ ...settings, namespace: namespace.name, connection: reads }),
        'leader.memory': ({ namespace, reads, retainer }) =>
          memoryDuty({
            ...{ ...settings, namespace, connection: reads, retainer, limitBytes: settings.memoryBytes },
            newKey: () => settings.randomness.id(),
            announce: (dropped, key) => this.#announce('busbar.memory.dropped', 'memory', { dropped }, key),
          }),
      },
    })
    this.schedules = this.#worker.schedules
    this.#consuming = new Consuming(settings, this.#backbone, publishing, (webhook, why, at) =>
      this.#announce('busbar.webhook.disabled', `webhook:${webhook}`, { webhook, why, at }, `${webhook}@${at}`),
    )
    this.subscriptions = this.#consuming.subscriptions
    this.queues = this.#consuming.queuesView
    this.webhooks = this.#consuming.webhooksView
    this.operations = this.#consuming.operations
    this.triggers = this.#consuming.triggers
    this.#handling.add({ name: 'publish', isIdle: async () => publishing.waiting === 0 })
    for (const handling of this.#consuming.handling) this.#handling.add(handling)
  }

  /** Stores one event. Calls for the same key are stored in the order of the calls. */
  publish<T extends TypeName<R>>(type: T, data?: DataIn<R, T>, options?: PublishOptions): Promise<Published>
  /** Keeps one event until it is due. A running bus of the namespace then puts it into the log. */
  publish<T extends TypeName<R>>(type: T, data: DataIn<R, T>, options: DelayOptions): Promise<Delayed>
  publish<T extends TypeName<R>>(
    type: T,
    data?: DataIn<R, T>,
    options: PublishOptions | DelayOptions = noOptions,
  ): Promise<Published | Delayed> {
    if (options.delay !== undefined || options.at !== undefined) return this.#publishing.delay(type, data, options)
    return this.#publishing.publish(type, data, options as PublishOptions)
  }

  /** Stores several events of one object and its state: contiguous, in this order, all or none. */
  commit(key: string, events: readonly CommitEvent<R>[], options: CommitOptions = noOptions): Promise<Published[]> {
    return this.#publishing.commit(key, events as readonly CommitEvent<Registry>[], options)
  }

  /** Stores many events, each on its own: one answer per event, in the order given; a bad one fails alone. */
  publishAll(events: readonly PublishAllEvent[], options: { timeout?: Duration } = {}): Promise<PublishAllAnswer[]> {
    return this.#publishing.publishAll(events, options)
  }

  /** Follows the log: every matching event, in order per partition, from `since` on. */
  live<const P extends Pattern>(pattern: P, options: LiveOptions = {}): Live<EventOf<R, P>> {
    checkKnown(options, knownOfLive)
    return this.#consuming.live(pattern, options) as unknown as Live<EventOf<R, P>>
  }

  /**
   * Declares a processor: every matching event, in order per object, however many processes share the work. With
   * `concurrency` the handler gets single events; without, all of a partition to iterate over.
   */
  processor<const P extends Pattern>(
    name: string,
    options: ProcessorOptions<P> & { concurrency: number },
    handler: EventHandler<EventOf<R, P>>,
  ): Declared
  processor<const P extends Pattern>(
    name: string,
    options: ProcessorOptions<P> & { concurrency?: undefined },
    handler: ProcessorHandler<EventOf<R, P>>,
  ): Declared
  processor(name: string, options: ProcessorOptions, handler: ProcessorHandler<never> | EventHandler<never>): Declared {
    return declared(name, this.#consuming.processors.declare(name, options, handler as ProcessorHandler<Event>))
  }

  /**
   * Declares a work queue: matching events enter it, and what is sent. Fair between tenants; each item is one worker's at a time
   * until it is acked. Without options it is as it is stored, or made with none: who only sends changes nothing for the others.
   */
  queue<const P extends Pattern>(name: string, options?: QueueOptions<P>): Queue<EventOf<R, P>> {
    const door = this.#consuming.queues.declare(name, options)
    const work = (handler: QueueHandler | BatchHandler, workOptions: WorkOptions = {}) =>
      this.#attach([{ name, weight: 1 }], handler, workOptions)
    return {
      name,
      work: work as Queue<EventOf<R, P>>['work'],
      send: (data, sendOptions) => door.send(data, sendOptions),
      claim: (claimOptions) => door.claim(claimOptions) as never,
      pop: (popOptions) => door.pop(popOptions) as never,
    }
  }

  /** One worker over several queues: they share its slots by weight, 1 where none is given. */
  work(
    queues: readonly { readonly name: string }[],
    handler: QueueHandler,
    { weights = {}, ...options }: WorkOptions & { weights?: Readonly<Record<string, number>> } = {},
  ): Declared {
    const names = queues.map(({ name }) => name)
    return this.#attach(checkDrawn(names, weights), handler, options)
  }

  #attach(drawn: readonly Drawn[], handler: QueueHandler | BatchHandler, options: WorkOptions): Declared {
    const worker = this.#consuming.queues.attach(drawn, handler, checkWork(options))
    return declared(drawn.map(({ name }) => name).join('+'), worker)
  }

  /**
   * Declares a webhook: matching events are posted to its URL, in batches, in order and signed, until it takes them. A running bus that
   * declares one posts those of the whole namespace.
   */
  webhook<const P extends Pattern>(name: string, options: WebhookOptions<P>): this {
    this.#consuming.webhooks.declare(name, options)
    return this
  }

  /** Declares what this process does at start, at an interval or by cron: on the leader, or in each process. */
  task(name: string, options: TaskOptions, handler: TaskHandler): this {
    this.#worker.tasks.declare(name, options, handler)
    return this
  }

  /** Declares an event that is published at each tick of a cron, exactly once however many processes run. */
  schedule(name: string, cron: string, event: ScheduledEvent, options: { timezone?: string } = {}): this {
    checkScheduled(name, event, options)
    const { type, data, tenant, key } = event
    const written = this.#publishing.write(type, data, { tenant, key })
    this.#worker.schedules.declare(name, cron, options.timezone ?? 'UTC', written)
    return this
  }

  /** The state last committed with an object, or null. */
  async state<T = unknown>(key: string, options: { tenant?: string } = {}): Promise<T | null> {
    checkKnown(options, new Set(['tenant']))
    const { tenant = defaultTenant } = options
    const object = `${checkTenant(tenant)}/${checkText('key', key, limits.keyBytes)}`
    const text = await this.#backbone.read((redis, namespace) => readState(redis, namespace, object))
    return text === null ? null : (JSON.parse(text) as T)
  }

  /** How many events each topic has had, by name. */
  topics(): Promise<Map<string, number>> {
    return this.#backbone.read(readTopics)
  }

  /** The running processes of the namespace, what each holds, and who leads. */
  workers(): Promise<WorkersFacts> {
    return this.#backbone.read((redis, { name }) => readWorkers(redis, name, this.#settings))
  }

  /** Every place an event went to, or will go to, with what became of it there. */
  trace(eventId: string): Promise<Trace> {
    return traceEvent(this.log, this.#consuming.traced, eventId)
  }

  /** Checks everything stored while it is in use. Yields what is wrong; nothing when all is well. */
  fsck(): AsyncGenerator<Finding, void, undefined> {
    return fsck(this.#backbone)
  }

  /** The names of the processors, queues, webhooks and tasks declared on this bus. */
  declared(): readonly string[] {
    const { processors, queues, webhooks } = this.#consuming
    return [...processors.names, ...queues.names, ...webhooks.names, ...this.#worker.tasks.names]
  }

  /**
   * Connects, stores what was declared and starts this process's background work. SIGTERM and SIGINT then close the bus,
   * unless the caller has more to end and says `signals: false`. NOT_DECLARED, with nothing started, when `only` has a
   * name that nobody declared.
   */
  async run(options: RunOptions = {}): Promise<this> {
    checkKnown(options, knownOfRun)
    this.#running ??= this.#run(options).catch((error) => {
      // What has started goes on; the next run() starts the rest.
      this.#running = undefined
      throw error
    })
    return this.#running
  }

  async #run({ only, signals = true, role = 'worker' }: RunOptions): Promise<this> {
    if (only) checkDeclared(only, this.declared())
    this.#publishing.open()
    const opened = await this.#backbone.open()
    const { namespace, retainer } = opened
    if (this.#loops.length === 0) this.#retain(retainer)
    const about = this.#about(role, only)
    await this.#worker.start({ ...opened, about, only })
    await this.#consuming.start(opened, about, only)
    if (this.#closing) throw BusbarError.of('BUS_CLOSED')
    if (signals) for (const signal of endSignals) process.once(signal, this.#onSignal)
    this.telemetry.emit('bus.started', { namespace: namespace.name, partitions: namespace.partitions.length })
    return this
  }

  /**
   * Runs, and resolves when nothing is left to do: everything published before is routed to the queues that this process
   * works on, and none of these has an item that can be given or is held. Answers what is left in each: for a later time, or because it is paused.
   */
  async drained({ signal }: { signal?: AbortSignal } = {}): Promise<Left[]> {
    await (this.#running ?? this.run())
    return this.#consuming.drained(signal)
  }

  /** An event of our own: once, however often it is asked for. */
  async #announce(type: string, key: string, data: unknown, once: string): Promise<void> {
    await this.#publishing.publishWritten(writeEvent(type, data, { key }), { idempotencyKey: `${type}@${once}` })
  }

  #retain(retainer: Retainer): void {
    const retain = async () => {
      await retainer.trimLog()
      return { againInMs: retentionLoopMs }
    }
    this.#loops.push(startLoop({ ...this.#settings, clock: this.#settings.network }, 'log.retain', retain))
  }

  /** Answers what was accepted, then lets everything go. Later calls answer BUS_CLOSED. */
  close({ timeout = closeTimeoutMs }: { timeout?: Duration } = {}): Promise<void> {
    this.#closing ??= this.#close(durationOf('timeout', timeout))
    return this.#closing
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  get [internals](): BusInternals {
    return { connections: this.#backbone.connections, looks: this.#loops, handling: this.#handling }
  }

  readonly #onSignal = (signal: NodeJS.Signals): void => {
    void this.close().then(() => {
      // Who else listens to the signal decides about the process; alone, it was asked to end.
      if (process.listenerCount(signal) === 0) process.exit(0)
    })
  }

  #about(role: string, only: readonly string[] | undefined) {
    const runs = this.declared().filter((name) => !only || only.includes(name))
    return { version, pid: process.pid, host: hostname(), role, runs } satisfies About
  }

  async #close(timeoutMs: number): Promise<void> {
    const { network } = this.#settings
    const until = network.monotonicMs() + timeoutMs
    // One time for all of it; what comes late still has a moment.
    const left = () => Math.max(50, until - network.monotonicMs())
    for (const signal of endSignals) process.off(signal, this.#onSignal)
    await this.#consuming.close(left)
    await this.#worker.stop(left())
    await Promise.all(this.#loops.map((loop) => loop.stop({ deadlineMs: left() })))
    await this.#consuming.endReaders(left)
    await this.#publishing.close(left())
    await this.#backbone.close()
    this.telemetry.emit('bus.closed', { namespace: this.namespace })
  }
}

/** What was declared can be closed by itself. */
function declared(name: string, ends: { close(timeoutMs: number): Promise<void> }): Declared {
  const close = ({ timeout = closeTimeoutMs }: { timeout?: Duration } = {}) =>
    ends.close(durationOf('timeout', timeout))
  return { name, close, [Symbol.asyncDispose]: close }
}

/** Makes a bus. Nothing is connected, written or started before the first use. */
export function busbar<const R extends Registry = Record<never, never>>(options: BusOptions<R> = {}): Bus<R> {
  return new Bus<R>(options)
}

/** JSON text to publish as it is, byte for byte. */
export const rawJson = (text: string): RawJson => new RawJson(text)
