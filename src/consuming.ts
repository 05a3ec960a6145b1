/**
 * What of a bus consumes the log, beside publishing.ts, which writes it: live readers, processors, and routing into queues.
 *
 *   made       nothing is connected
 *   started    member of the groups it is needed in; one watch on the log for all of them
 *   closed     what was held is let go, live readers have ended
 */
import type { Backbone, Opened } from './backbone.ts'
import type { Settings } from './bus-options.ts'
import { kindOf } from './envelope.ts'
import { LaneStores } from './lanes/store.ts'
import { separator } from './log/entry.ts'
import { LogGrowth } from './log/growth.ts'
import type { LogHint } from './log/hint.ts'
import { readLasts } from './log/read.ts'
import { createTriggersView, type TriggersView } from './operations/triggers.ts'
import { createOperationsView, type OperationsView } from './operations/view.ts'
import type { Pattern } from './pattern.ts'
import type { Publishing } from './publishing.ts'
import { Router } from './route/router.ts'
import type { Along } from './route/sink.ts'
import type { Sinks } from './route/stores.ts'
import { Subscriptions } from './route/subscriptions.ts'
import type { RouteTable } from './route/table.ts'
import type { Handling } from './runtime/handling.ts'
import { LiveHub } from './sinks/live/hub.ts'
import { type LiveOptions, LiveReader } from './sinks/live/reader.ts'
import { type Left, whenDrained } from './sinks/queue/drain.ts'
import type { QueueGround } from './sinks/queue/queue.ts'
import { Queues } from './sinks/queue/queues.ts'
import { QueueSink, type QueueSinkGround } from './sinks/queue/sink.ts'
import { queueTrace } from './sinks/queue/trace.ts'
import { createQueuesView, type QueuesView } from './sinks/queue/view.ts'
import { Processors } from './sinks/stream/processors.ts'
import { processorTrace } from './sinks/stream/trace.ts'
import { Shards } from './sinks/webhook/shard.ts'
import { WebhookSink } from './sinks/webhook/sink.ts'
import { webhookTrace } from './sinks/webhook/trace.ts'
import { createWebhooksView, type WebhooksView } from './sinks/webhook/view.ts'
import { type WebhookGround, Webhooks } from './sinks/webhook/webhooks.ts'
import type { TracedSink } from './traced.ts'

export class Consuming {
  readonly processors: Processors
  readonly queues: Queues
  readonly queuesView: QueuesView
  readonly webhooks: Webhooks
  readonly webhooksView: WebhooksView
  readonly operations: OperationsView
  readonly triggers: TriggersView
  /** Each way to consume, for whoever asks where an event went. */
  readonly traced: readonly TracedSink[]
  readonly subscriptions: Subscriptions
  /** For whoever asks whether everything has been handled. */
  readonly handling: readonly Handling[]
  readonly #settings: Settings
  readonly #backbone: Backbone
  readonly #publishing: Pick<Publishing, 'process' | 'saw'>
  /** New with every bus: tells this one from an earlier one of the same name. */
  readonly #start: string
  readonly #router: Router
  readonly #readers = new Set<LiveReader>()
  #hub: LiveHub | undefined
  #growth: LogGrowth | undefined
  #stores: LaneStores | undefined
  #shards: Shards | undefined
  #started = false

  /** `announce`: a webhook was disabled. */
  constructor(
    settings: Settings,
    backbone: Backbone,
    publishing: Pick<Publishing, 'process' | 'saw'>,
    announce: (name: string, why: string, atMs: number) => Promise<void>,
  ) {
    this.#settings = settings
    this.#backbone = backbone
    this.#publishing = publishing
    this.#start = settings.randomness.id()
    this.processors = new Processors({ ...settings, source: backbone })
    const open = () => this.#openQueue()
    const sinks: Sinks = {
      queue: new QueueSink(open, {
        expect: (name) => this.queues.expect(name),
        takeBy: (name, take) => this.queues.takeBy(name, take),
      }),
      webhook: new WebhookSink(() => this.#openWebhooks()),
    }
    const subscriptions = new Subscriptions({ ...settings, source: backbone, sinks })
    this.subscriptions = subscriptions
    this.#router = new Router({
      ...{ ...settings, sinks },
      finishRemoval: (name, removal) => subscriptions.finishRemoval(name, removal),
      changed: (table) => this.webhooks.follow(namesOf(table)),
    })
    this.queues = new Queues({ open, isNamed: settings.isNamed, subscriptions })
    this.queuesView = createQueuesView({
      ...{ source: backbone, subscriptions, queues: this.queues, clock: settings.clock },
      connection: async () => (await backbone.open()).reads,
    })
    this.webhooks = new Webhooks({
      ...{ policy: settings.webhooks, subscriptions, announce },
      open: () => this.#openWebhooks(),
    })
    this.webhooksView = createWebhooksView({
      ...{ source: backbone, subscriptions, webhooks: this.webhooks, randomness: settings.randomness },
      shards: async () => (await this.#openWebhooks()).shards,
    })
    this.operations = createOperationsView({
      ...{ ...settings, source: backbone, subscriptions },
      hints: async () => (await backbone.open()).hints,
    })
    this.triggers = createTriggersView({
      ...{ ...settings, source: backbone, subscriptions },
      send: ({ queue, trigger, data, ...options }) =>
        this.queues.open(queue).sendFor(trigger, data, { ...options, kind: 'manual' }),
    })
    this.traced = [
      queueTrace({ ...settings, source: backbone, subscriptions }),
      webhookTrace({ source: backbone, subscriptions, shards: async () => (await this.#openWebhooks()).shards }),
      processorTrace(backbone),
    ]
    this.handling = [
      { name: 'route', isIdle: () => this.#isRouterIdle() },
      { name: 'queues', isIdle: async () => this.queues.isDry },
      { name: 'webhooks', isIdle: async () => this.webhooks.isDry },
      { name: 'processors', isIdle: () => this.#areProcessorsIdle() },
    ]
  }

  live(pattern: Pattern, options: LiveOptions): LiveReader {
    const { telemetry } = this.#settings
    const ended = (reader: LiveReader) => this.#readers.delete(reader)
    const reader = new LiveReader({ hub: () => this.#openHub(), telemetry, ended }, pattern, options)
    this.#readers.add(reader)
    return reader
  }

  async start(
    opened: Opened,
    about: Readonly<Record<string, unknown>>,
    only: readonly string[] | undefined,
  ): Promise<void> {
    this.#started = true
    const growth = this.#watchGrowth(opened)
    await this.#router.start({ ...opened, growth, about })
    await this.processors.start({ ...opened, growth, about }, only)
    await this.queues.start(only)
    await this.webhooks.start(only)
  }

  /** Resolves when everything published before is routed and the queues worked on here have nothing to give. */
  drained(signal: AbortSignal | undefined): Promise<Left[]> {
    const { clock, network } = this.#settings
    return whenDrained({
      ...{ source: this.#backbone, clock, network, signal },
      queues: this.queues.workedOn,
      begun: () => this.queues.begun,
    })
  }

  /** Lets go of what is shared with other processes. */
  async close(left: () => number): Promise<void> {
    const { processors, queues, webhooks } = this
    await Promise.all([processors, queues, webhooks, this.#router].map((each) => each.close(left())))
    await this.#growth?.stop(left())
  }

  async endReaders(left: () => number): Promise<void> {
    for (const reader of this.#readers) await reader.return()
    await this.#hub?.stop(left())
  }

  /** One watch for all that wait for the log in this process; it costs nothing before the first one does. */
  #watchGrowth(opened: Opened): LogGrowth {
    this.#growth ??= new LogGrowth(this.#readingOn(opened))
    return this.#growth
  }

  async #openHub(): Promise<LiveHub> {
    const opened = await this.#backbone.open()
    this.#hub ??= new LiveHub(this.#readingOn(opened))
    return this.#hub
  }

  /** A lone event of this process is about to be stored: answers who takes it right away. */
  takeNext(partition: number, records: string): Along | undefined {
    const kind = kindOf(records.slice(separator.length))
    return kind && this.#router.takeNext(partition, kind)
  }

  /** A lone event of this process was stored. While nobody else listens no other hint of it comes. */
  heard(partition: number, hint: LogHint): void {
    this.#growth?.heard(partition, hint)
    this.#hub?.heard(partition, hint)
  }

  #readingOn({ namespace, reads, hints }: Opened) {
    const { network } = this.#settings
    const { process } = this.#publishing
    const saw = (partition: number, seq: number) => this.#publishing.saw(partition, seq)
    return { ...this.#settings, clock: network, namespace, connection: reads, hints, process, saw }
  }

  async #openQueue(): Promise<QueueGround & QueueSinkGround> {
    const { namespace, reads, writes, hints } = await this.#backbone.open()
    const { name } = namespace
    const repeated = <T>(ask: () => Promise<T>) => this.#backbone.read(ask)
    this.#stores ??= new LaneStores({ ...this.#settings, connection: reads }, name)
    const stores = this.#stores
    return {
      ...{ ...this.#settings, namespace: name, connection: reads, writes },
      ...{ hints, start: this.#start, repeated, stores },
    }
  }

  async #openWebhooks(): Promise<WebhookGround> {
    const { namespace, reads, hints } = await this.#backbone.open()
    const ground = { ...this.#settings, namespace: namespace.name, connection: reads }
    this.#shards ??= new Shards(ground)
    return { ...ground, hints, start: this.#start, shards: this.#shards }
  }

  /** Nothing that is stored waits to be handed to a store by this process. */
  async #isRouterIdle(): Promise<boolean> {
    return !this.#started || this.#router.isIdleUpTo(await this.#backbone.read(readLasts))
  }

  /** Nothing that is stored waits for a processor of this process. */
  async #areProcessorsIdle(): Promise<boolean> {
    if (!this.processors.areRunning) return true
    return this.processors.isIdleUpTo(await this.#backbone.read(readLasts))
  }
}

function namesOf(table: RouteTable): string[] {
  return [...table.all()].flatMap(({ kind, name }) => (kind === 'webhook' ? [name] : []))
}
