/**
 * How events come into the log from this process: checked, written down, sent; at once or when they are due.
 *
 *   closed up   nothing was published yet: nothing is connected
 *   open        the first call has opened the backbone; calls wait for it
 *   closed      what was accepted is answered; later calls hear BUS_CLOSED
 */

import type { Backbone } from './backbone.ts'
import type { Settings } from './bus-options.ts'
import type {
  CommitEvent,
  CommitOptions,
  DelayOptions,
  PublishAllAnswer,
  PublishAllEvent,
  PublishOptions,
} from './bus-types.ts'
import { type Duration, durationOf } from './duration.ts'
import { BusbarError, shown } from './errors.ts'
import { limits } from './event.ts'
import { checkText } from './event-checks.ts'
import { type Call, type CallOptions, type Published, simpleCall, withOptions } from './publish/call.ts'
import { type Delayed, Delayer } from './publish/delayed.ts'
import { Publisher, type PublisherContext } from './publish/publisher.ts'
import { type EventPlace, type WrittenEvent, writeEvent } from './publish/written-event.ts'
import { liveChannelPrefix } from './redis/keys.ts'
import { applyRegistry, type Registry } from './registry.ts'
import { isUnknownOf, named, unknownOption } from './unknown-name.ts'

const known = {
  publish: new Set<keyof PublishOptions | keyof PublishAllEvent>([
    'tenant',
    'key',
    'time',
    'trace',
    'idempotencyKey',
    'expectPrev',
    'timeout',
    'delay',
    'at',
    // Whoever has an event as a whole may pass it on as it is.
    'type',
    'data',
  ]),
  commit: new Set<keyof CommitOptions | 'key'>(['tenant', 'state', 'idempotencyKey', 'expectPrev', 'timeout', 'key']),
  publishAll: new Set(['timeout']),
  /** Of one event of a commit. */
  more: new Set(['time', 'trace']),
}
const noMore = {}

export class Publishing {
  /** Under which its flushes are remembered. */
  readonly process: string
  readonly delayer: Delayer
  /** '' when the live channel is off. */
  readonly liveChannelPrefix: string
  readonly #settings: Settings
  readonly #backbone: Backbone
  readonly #publisher: Publisher
  #opening = false

  /** `lone` hears of each lone event, when it is sent and when it is stored. */
  constructor(settings: Settings, backbone: Backbone, lone: Pick<PublisherContext, 'takeNext' | 'stored'>) {
    this.#settings = settings
    this.#backbone = backbone
    this.process = settings.randomness.id()
    this.liveChannelPrefix = settings.liveChannel ? liveChannelPrefix(settings.namespace.name) : ''
    this.delayer = new Delayer({ ...settings, source: backbone })
    this.#publisher = new Publisher(
      {
        clock: settings.network,
        serverUs: settings.clock.serverUs,
        telemetry: settings.telemetry,
        grown: (partition) => this.#trimSoon(partition),
        ...lone,
      },
      {
        process: this.process,
        maxWaiting: settings.maxWaiting,
        maxWaitingBytes: settings.maxWaitingBytes,
        liveChannelPrefix: this.liveChannelPrefix,
      },
    )
  }

  /** Calls that have no answer yet. */
  get waiting(): number {
    return this.#publisher.waiting.calls
  }

  publish(type: string, data: unknown, options: PublishOptions): Promise<Published> {
    return new Promise((resolve, reject) => {
      checkNames(options, known.publish)
      const event = this.write(type, data, options)
      const call = this.#call(event, options.timeout, resolve, reject)
      const plain = options.idempotencyKey === undefined && options.expectPrev === undefined
      this.#submit(plain ? call : withOptions(call, [event], { ...options, state: undefined }))
    })
  }

  commit(key: string, events: readonly CommitEvent<Registry>[], options: CommitOptions): Promise<Published[]> {
    return new Promise((resolve, reject) => {
      checkNames(options, known.commit)
      checkCount(events)
      checkText('key', key, limits.keyBytes)
      checkSameKey(key, options)
      const { tenant, timeout } = options
      const written = events.map((event) => {
        if (!Array.isArray(event)) throw notAnEvent(event, '[type, data]')
        const [type, data, more = noMore] = event
        checkNames(more, known.more)
        return this.write(type, data, { ...more, tenant, key })
      })
      checkOneObject(written)
      checkSize(written)
      const answered = (first: Published, rest: readonly Published[]) => resolve([first, ...rest])
      const call = withOptions(this.#call(written[0]!, timeout, answered, reject), written, options)
      this.#submit(call)
    })
  }

  async publishAll(events: readonly PublishAllEvent[], options: { timeout?: Duration }): Promise<PublishAllAnswer[]> {
    checkNames(options, known.publishAll)
    checkCount(events)
    const answers = events.map(async (event) => {
      if (typeof event !== 'object' || event === null) throw notAnEvent(event, '{ type, data }')
      const { type, data, ...rest } = event
      return this.publish(type, data, { ...notDelayed(rest), ...options })
    })
    const settled = await Promise.allSettled(answers)
    return settled.map((answer) => {
      if (answer.status === 'fulfilled') return answer.value
      if (answer.reason instanceof BusbarError) return { error: answer.reason }
      throw answer.reason
    })
  }

  async delay(type: string, data: unknown, options: DelayOptions): Promise<Delayed> {
    checkNames(options, known.publish)
    const event = this.write(type, data, options)
    return this.delayer.delay(event, options, this.#timeoutMs(options.timeout))
  }

  /** What was written down before. */
  publishWritten(event: WrittenEvent, options: CallOptions): Promise<Published> {
    return new Promise((resolve, reject) => {
      this.#submit(withOptions(this.#call(event, undefined, resolve, reject), [event], options))
    })
  }

  /** Written down as the registry and the limits want it. */
  write(type: string, data: unknown, place: EventPlace): WrittenEvent {
    const { registry } = this.#settings
    if (registry.size === 0) return writeEvent(type, data, place)
    const applied = applyRegistry(registry, type, data, place)
    return writeEvent(type, applied.data, applied.place)
  }

  /** The log was seen to reach this seq. */
  saw(partition: number, seq: number): void {
    this.#publisher.saw(partition, seq)
  }

  /** The highest seq of the partition that this process has seen. */
  floorOf(partition: number): number {
    return this.#publisher.floorOf(partition)
  }

  /** Opens the backbone, if nothing was published before. */
  open(): void {
    if (this.#opening) return
    this.#opening = true
    this.#backbone.open().then(
      ({ namespace, writes }) => this.#publisher.open(namespace, writes),
      (error) => this.#publisher.refuse(error),
    )
  }

  async close(timeoutMs: number): Promise<void> {
    await Promise.all([this.#publisher.close(timeoutMs), this.delayer.close(timeoutMs)])
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
    this.open()
    this.#publisher.submit(call)
  }

  #trimSoon(partition: number): void {
    this.#backbone
      .open()
      .then(({ retainer }) => retainer.trimPartition(partition))
      // A lost connection: the next few thousand events, or the loop, try again.
      .catch(() => undefined)
  }
}

function checkNames(options: object, names: ReadonlySet<string>): void {
  const unknown = unknownOption(options, names)
  if (unknown === undefined) return
  const value = shown((options as Record<string, unknown>)[unknown])
  throw BusbarError.of('EVENT_INVALID', { field: named(unknown), value, problem: isUnknownOf(unknown, names) })
}

/** A place that is shared with publishes has a key, too; another one than the commit's would be without effect. */
function checkSameKey(key: string, options: CommitOptions & { key?: unknown }): void {
  if (options.key === undefined || options.key === key) return
  const problem = `must be the key of the commit, ${shown(key)}`
  throw BusbarError.of('EVENT_INVALID', { field: 'key', value: shown(options.key), problem })
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
