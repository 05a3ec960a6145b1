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
import { checkDeclared } from './declared.ts'
import { type Duration, parseDuration } from './duration.ts'
import { BusbarError, shown } from './errors.ts'
import { checkTenant, checkText, defaultTenant, type Event, limits, RawJson } from './event.ts'
import { type About, readWorkers, type WorkersFacts } from './group/workers-view.ts'
import { type Finding, fsck } from './log/fsck.ts'
import { readLasts, readState, readTopics } from './log/read.ts'
import { createLogView, type LogView } from './log/view.ts'
import type { MatchedTypes, Pattern } from './pattern.ts'
import { type Call, type CallOptions, type Published, simpleCall, withOptions } from './publish/call.ts'
import { type Delayed, type DelayedView, Delayer } from './publish/delayed.ts'
import { Publisher } from './publish/publisher.ts'
import { type EventInput, type EventPlace, type WrittenEvent, writeEvent } from './publish/written-event.ts'
import { liveChannelPrefix as liveChannelPrefixOf } from './redis/keys.ts'
import { applyRegistry, type DataIn, type DataOut, type Registry } from './registry.ts'
import type { Handling } from './runtime/handling.ts'
import { type Loop, startLoop } from './runtime/loop.ts'
import type { Telemetry } from './runtime/telemetry.ts'
import { LiveHub } from './sinks/live/hub.ts'
import { type LiveOptions, LiveReader } from './sinks/live/reader.ts'
import type { PartitionEvents } from './sinks/stream/events.ts'
import type { ProcessorContext, ProcessorOptions } from './sinks/stream/options.ts'
import { Processors } from './sinks/stream/processors.ts'
import { createStreamsView, type StreamsView } from './sinks/stream/view.ts'
import type { ScheduledEvent } from './tasks/schedule.ts'
import type { SchedulesView } from './tasks/schedules.ts'
import type { TaskHandler, TaskOptions } from './tasks/task.ts'
import { Worker } from './tasks/worker.ts'
import { version } from './version.ts'

export interface PublishOptions extends EventPlace {
  idempotencyKey?: string
  /** seq of the object's last event, or null for none: anything else is a CONFLICT. */
  expectPrev?: number | null
  timeout?: Duration
  delay?: undefined
  at?: undefined
}

/** Not visible before it is due; then it gets its place in the log. */
export interface DelayOptions extends EventPlace {
  /** From now, at most 366 days. Give this or `at`. */
  delay?: Duration | undefined
  /** A Date, or ms since the epoch; one that has passed means at once. */
  at?: Date | number | undefined
  idempotencyKey?: string
  timeout?: Duration
}

export interface CommitOptions extends CallOptions {
  tenant?: string
  timeout?: Duration
}

export interface PublishAllEvent extends EventInput {
  idempotencyKey?: string
  expectPrev?: number | null
}

/** One answer of publishAll: what publish would have answered, or the error it would have thrown. */
export type PublishAllAnswer = (Published & { error?: undefined }) | { error: BusbarError }

type TypeName<R extends Registry> = (keyof R & string) | (string & {})

/** `[type, data]` or `[type, data, { time, trace }]`. */
export type CommitEvent<R extends Registry> =
  | {
      [T in keyof R & string]: readonly [type: T, data: DataIn<R, T>, more?: Pick<EventInput, 'time' | 'trace'>]
    }[keyof R & string]
  | readonly [type: string, data?: unknown, more?: Pick<EventInput, 'time' | 'trace'>]

/** Events as the registry and a pattern literal say they are. */
export type EventOf<R extends Registry, P> = [keyof R & string] extends [never]
  ? Event
  : { [T in MatchedTypes<keyof R & string, P>]: Event<DataOut<R, T>, T> }[MatchedTypes<keyof R & string, P>]

export interface Live<E> extends AsyncIterableIterator<E>, AsyncDisposable {
  /** Resolves when every matching event published from now on will be delivered. */
  ready(): Promise<void>
  /** Where to go on after the last delivered event. */
  readonly cursor: string
}

export interface RunOptions {
  /** Names of what to start; nothing else that was declared is. Default: everything. */
  only?: readonly string[]
  /** Whether SIGTERM and SIGINT close the bus. Default true. */
  signals?: boolean
  /** What this process is, for people who look at `busbar workers`. Default 'worker'. */
  role?: string
}

/** Gets the events of one partition, for as long as this process holds it. */
export type ProcessorHandler<E extends Event> = (
  events: PartitionEvents<E>,
  context: ProcessorContext,
) => Promise<void> | void

/** Gets one event at a time. */
export type EventHandler<E extends Event> = (event: E, context: ProcessorContext) => Promise<void> | void

/** Something declared on a bus. */
export interface Declared extends AsyncDisposable {
  readonly name: string
  /** Ends it in this process: what is in hand is finished, or aborted at the timeout. */
  close(options?: { timeout?: Duration }): Promise<void>
}

const noOptions = {}
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
  /** What is stored of schedules, whoever declared them. */
  readonly schedules: SchedulesView
  /** Delayed events that are not due yet. */
  readonly delayed: DelayedView
  readonly #settings: Settings
  readonly #backbone: Backbone
  readonly #publisher: Publisher
  readonly #delayer: Delayer
  readonly #worker: Worker
  readonly #readers = new Set<LiveReader>()
  readonly #processors: Processors
  readonly #handling = new Set<Handling>()
  #opening = false
  #hub: LiveHub | undefined
  #loops: Loop[] = []
  #closing: Promise<void> | undefined

  constructor(options: BusOptions<R>) {
    const settings = checkOptions(options)
    this.#settings = settings
    this.namespace = settings.namespace.name
    this.worker = settings.worker
    this.telemetry = settings.telemetry
    this.#backbone = new Backbone(settings)
    const liveChannelPrefix = settings.liveChannel ? liveChannelPrefixOf(this.namespace) : ''
    this.#publisher = new Publisher(
      {
        clock: settings.network,
        serverUs: settings.clock.serverUs,
        telemetry: settings.telemetry,
        grown: (partition) => this.#trimSoon(partition),
      },
      {
        process: settings.randomness.id(),
        maxWaiting: settings.maxWaiting,
        maxWaitingBytes: settings.maxWaitingBytes,
        liveChannelPrefix,
      },
    )
    this.log = createLogView(this.#backbone)
    this.streams = createStreamsView(this.#backbone, settings)
    this.#delayer = new Delayer({ ...settings, source: this.#backbone })
    this.delayed = this.#delayer
    const saw = (partition: number, seq: number) => this.#publisher.saw(partition, seq)
    this.#worker = new Worker({
      ...settings,
      source: this.#backbone,
      publish: (event, call) => this.#publish(event, undefined, call),
      floorOf: (partition) => this.#publisher.floorOf(partition),
      saw,
      liveChannelPrefix,
    })
    this.schedules = this.#worker.schedules
    this.#processors = new Processors({ ...settings, source: this.#backbone, saw })
    this.#handling.add({ name: 'publish', isIdle: async () => this.#publisher.waiting.calls === 0 })
    this.#handling.add({ name: 'processors', isIdle: () => this.#areProcessorsIdle() })
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
    if (options.delay !== undefined || options.at !== undefined) return this.#delay(type, data, options)
    return this.#publishNow(type, data, options as PublishOptions)
  }

  #publishNow(type: string, data: unknown, options: PublishOptions): Promise<Published> {
    return new Promise((resolve, reject) => {
      const event = this.#write(type, data, options)
      const call = this.#call(event, options.timeout, resolve, reject)
      const plain = options.idempotencyKey === undefined && options.expectPrev === undefined
      this.#submit(plain ? call : withOptions(call, [event], { ...options, state: undefined }))
    })
  }

  /** Stores several events of one object and its state: contiguous, in this order, all or none. */
  commit(key: string, events: readonly CommitEvent<R>[], options: CommitOptions = noOptions): Promise<Published[]> {
    return new Promise((resolve, reject) => {
      checkCount(events)
      checkText('key', key, limits.keyBytes)
      const { tenant, timeout } = options
      const written = events.map((event) => {
        if (!Array.isArray(event)) throw notAnEvent(event, '[type, data]')
        const [type, data, more] = event
        return this.#write(type, data, { ...more, tenant, key })
      })
      checkOneObject(written)
      checkSize(written)
      const answered = (first: Published, rest: readonly Published[]) => resolve([first, ...rest])
      const call = withOptions(this.#call(written[0]!, timeout, answered, reject), written, options)
      this.#submit(call)
    })
  }

  /** Stores many events, each on its own: one answer per event, in the order given; a bad one fails alone. */
  async publishAll(
    events: readonly PublishAllEvent[],
    options: { timeout?: Duration } = {},
  ): Promise<PublishAllAnswer[]> {
    checkCount(events)
    const answers = events.map(async (event) => {
      if (typeof event !== 'object' || event === null) throw notAnEvent(event, '{ type, data }')
      const { type, data, ...rest } = event
      return this.#publishNow(type, data, { ...notDelayed(rest), ...options })
    })
    const settled = await Promise.allSettled(answers)
    return settled.map((answer) => {
      if (answer.status === 'fulfilled') return answer.value
      if (answer.reason instanceof BusbarError) return { error: answer.reason }
      throw answer.reason
    })
  }

  /** Follows the log: every matching event, in order per partition, from `since` on. */
  live<const P extends Pattern>(pattern: P, options: LiveOptions = {}): Live<EventOf<R, P>> {
    const reader = new LiveReader(
      { hub: () => this.#openHub(), telemetry: this.telemetry, ended: (ended) => this.#readers.delete(ended) },
      pattern,
      options,
    )
    this.#readers.add(reader)
    return reader as unknown as Live<EventOf<R, P>>
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
    const processor = this.#processors.declare(name, options, handler as ProcessorHandler<Event>)
    const close = ({ timeout = closeTimeoutMs }: { timeout?: Duration } = {}) =>
      processor.close(durationOf('timeout', timeout))
    return { name, close, [Symbol.asyncDispose]: close }
  }

  /** Declares what this process does at start, at an interval or by cron: on the leader, or in each process. */
  task(name: string, options: TaskOptions, handler: TaskHandler): this {
    this.#worker.tasks.declare(name, options, handler)
    return this
  }

  /** Declares an event that is published at each tick of a cron, exactly once however many processes run. */
  schedule(name: string, cron: string, event: ScheduledEvent, { timezone = 'UTC' }: { timezone?: string } = {}): this {
    const { type, data, tenant, key } = event
    this.#worker.schedules.declare(name, cron, timezone, this.#write(type, data, { tenant, key }))
    return this
  }

  /** The state last committed with an object, or null. */
  async state<T = unknown>(key: string, { tenant = defaultTenant }: { tenant?: string } = {}): Promise<T | null> {
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

  /** Checks the log while it is in use. Yields what is wrong; nothing when all is well. */
  fsck(): AsyncGenerator<Finding, void, undefined> {
    return fsck(this.#backbone)
  }

  /** The names of everything declared on this bus. */
  declared(): readonly string[] {
    return this.#processors.names
  }

  /**
   * Connects, stores what was declared and starts this process's background work. SIGTERM and SIGINT then close the bus,
   * unless the caller has more to end and says `signals: false`. NOT_DECLARED, with nothing started, when `only` has a
   * name that nobody declared.
   */
  async run({ only, signals = true, role = 'worker' }: RunOptions = {}): Promise<this> {
    if (only) checkDeclared(only, this.declared())
    if (!this.#opening) this.#open()
    const opened = await this.#backbone.open()
    const { namespace, retainer } = opened
    if (this.#loops.length > 0) return this
    const retain = async () => {
      await retainer.trimLog()
      return { againInMs: retentionLoopMs }
    }
    this.#loops.push(startLoop({ ...this.#settings, clock: this.#settings.network }, 'log.retain', retain))
    const about = this.#about(role, only)
    await this.#worker.start({ ...opened, about })
    await this.#processors.start({ ...opened, about }, only)
    if (signals) for (const signal of endSignals) process.once(signal, this.#onSignal)
    this.telemetry.emit('bus.started', { namespace: namespace.name, partitions: namespace.partitions.length })
    return this
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
    const processors = this.#processors.names.filter((name) => !only || only.includes(name))
    const runs = [...processors, ...this.#worker.tasks.names]
    return { version, pid: process.pid, host: hostname(), role, runs } satisfies About
  }

  async #close(timeoutMs: number): Promise<void> {
    for (const signal of endSignals) process.off(signal, this.#onSignal)
    await this.#processors.close(timeoutMs)
    await this.#worker.stop(timeoutMs)
    await Promise.all(this.#loops.map((loop) => loop.stop({ deadlineMs: timeoutMs })))
    for (const reader of this.#readers) await reader.return()
    await this.#hub?.stop(timeoutMs)
    await Promise.all([this.#publisher.close(timeoutMs), this.#delayer.close(timeoutMs)])
    await this.#backbone.close()
    this.telemetry.emit('bus.closed', { namespace: this.namespace })
  }

  #write(type: string, data: unknown, place: EventPlace): WrittenEvent {
    const { registry } = this.#settings
    if (registry.size === 0) return writeEvent(type, data, place)
    const applied = applyRegistry(registry, type, data, place)
    return writeEvent(type, applied.data, applied.place)
  }

  async #delay(type: string, data: unknown, options: DelayOptions): Promise<Delayed> {
    const event = this.#write(type, data, options)
    return this.#delayer.delay(event, options, this.#timeoutMs(options.timeout))
  }

  #publish(event: WrittenEvent, timeout: Duration | undefined, options: CallOptions): Promise<Published> {
    return new Promise((resolve, reject) => {
      this.#submit(withOptions(this.#call(event, timeout, resolve, reject), [event], options))
    })
  }

  #call(event: WrittenEvent, timeout: Duration | undefined, resolve: Call['resolve'], reject: Call['reject']): Call {
    const timeoutMs = this.#timeoutMs(timeout)
    const deadlineAt = Math.ceil(this.#settings.network.monotonicMs() + timeoutMs)
    return simpleCall(event, timeoutMs, deadlineAt, resolve, reject)
  }

  #timeoutMs(timeout: Duration | undefined): number {
    return timeout === undefined ? this.#settings.timeoutMs : durationOf('timeout', timeout)
  }

  #submit(call: Call): void {
    if (!this.#opening) this.#open()
    this.#publisher.submit(call)
  }

  #open(): void {
    this.#opening = true
    this.#backbone.open().then(
      ({ namespace, writes }) => this.#publisher.open(namespace, writes),
      (error) => this.#publisher.refuse(error),
    )
  }

  async #openHub(): Promise<LiveHub> {
    const { namespace, reads, hints } = await this.#backbone.open()
    this.#hub ??= new LiveHub({
      ...this.#settings,
      clock: this.#settings.network,
      namespace,
      connection: reads,
      hints,
      saw: (partition, seq) => this.#publisher.saw(partition, seq),
    })
    return this.#hub
  }

  /** Nothing that is stored waits for a processor of this process. */
  async #areProcessorsIdle(): Promise<boolean> {
    if (!this.#processors.areRunning) return true
    return this.#processors.isIdleUpTo(await this.#backbone.read(readLasts))
  }

  #trimSoon(partition: number): void {
    this.#backbone
      .open()
      .then(({ retainer }) => retainer.trimPartition(partition))
      // A lost connection: the next few thousand events, or the loop, try again.
      .catch(() => undefined)
  }
}

const notAnEvent = (event: unknown, shape: string): BusbarError =>
  BusbarError.of('EVENT_INVALID', { field: 'events', value: shown(event), problem: `must hold events like ${shape}` })

/** Its answers are places in the log, which a delayed event does not have. */
function notDelayed<T extends object>(options: T): T {
  for (const field of ['delay', 'at'])
    if ((options as Record<string, unknown>)[field] !== undefined)
      throw BusbarError.of('EVENT_INVALID', {
        field,
        value: shown((options as Record<string, unknown>)[field]),
        problem: 'is for single publishes; publish delayed events one by one',
      })
  return options
}

function checkCount(events: unknown): void {
  if (!Array.isArray(events) || events.length === 0)
    throw BusbarError.of('EVENT_INVALID', {
      field: 'events',
      value: shown(events),
      problem: 'must be a list of at least one event',
    })
  if (events.length > limits.callEvents)
    throw BusbarError.of('CALL_TOO_LARGE', {
      events: events.length,
      maxEvents: limits.callEvents,
      maxBytes: limits.callBytes,
    })
}

/** A registry may derive tenants from the data; a commit is about one object. */
function checkOneObject(events: readonly WrittenEvent[]): void {
  const other = events.find((event) => event.object !== events[0]!.object)
  if (other)
    throw BusbarError.of('EVENT_INVALID', {
      field: 'tenant',
      value: shown(other.object),
      problem: `must be the same for all events of a commit, ${shown(events[0]!.object)}`,
    })
}

function checkSize(events: readonly WrittenEvent[]): void {
  const bytes = events.reduce((sum, event) => sum + event.bytes, 0)
  if (bytes > limits.callBytes)
    throw BusbarError.of('CALL_TOO_LARGE', { bytes, maxEvents: limits.callEvents, maxBytes: limits.callBytes })
}

function durationOf(field: string, value: Duration): number {
  const parsed = parseDuration(value)
  if (!parsed.ok) throw BusbarError.of('EVENT_INVALID', { field, value: shown(value), problem: parsed.problem })
  return parsed.value
}

/** Makes a bus. Nothing is connected, written or started before the first use. */
export function busbar<const R extends Registry = Record<never, never>>(options: BusOptions<R> = {}): Bus<R> {
  return new Bus<R>(options)
}

/** JSON text to publish as it is, byte for byte. */
export const rawJson = (text: string): RawJson => new RawJson(text)
