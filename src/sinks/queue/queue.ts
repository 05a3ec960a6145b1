/**
 * One queue as a process uses it: sends, claims by hand, and says what a worker of this process does with it.
 *
 * Declaring writes nothing. The first use, or run(), registers the definition: then events enter it, whoever runs.
 */
import { createHash } from 'node:crypto'
import type { Duration } from '../../duration.ts'
import { BusbarError, errorText } from '../../errors.ts'
import { defaultTenant, limits } from '../../event.ts'
import { checkText } from '../../event-checks.ts'
import type { ClaimReply, Outcome } from '../../lanes/acts.ts'
import { keyWord, readItem } from '../../lanes/item.ts'
import { laneLimits, type SentItem } from '../../lanes/scripts.ts'
import type { LaneStore, LaneStores } from '../../lanes/store.ts'
import { redactorOf } from '../../operations/redact.ts'
import { envelopeOf, type WrittenEvent, writeEvent } from '../../publish/written-event.ts'
import { type Connection, mayPass } from '../../redis/connection.ts'
import type { Hints } from '../../redis/hints.ts'
import { backoffMs } from '../../runtime/backoff.ts'
import type { Clock, Randomness } from '../../runtime/clock.ts'
import type { Telemetry } from '../../runtime/telemetry.ts'
import { checkKnown } from '../../unknown-name.ts'
import { checkCount, checkTime, invalid } from './checks.ts'
import { HeldLease } from './held-lease.ts'
import { ClaimedItem, type ClaimedLease, type LeaseDoor, type SettleWord } from './lease.ts'
import type { QueueSettings } from './options.ts'
import { Sender, type Sent } from './sender.ts'
import { Settler } from './settler.ts'
import { doneWith, shownOutcome } from './shown.ts'

export interface SendOptions {
  tenant?: string
  key?: string
  /** Not given to anyone before this time has passed. */
  delay?: Duration
  /** Dropped, and counted, when nobody has claimed it by then. */
  ttl?: Duration
  /** -100 to 100; of one tenant the higher ones first. Default 0. */
  priority?: number
  /** The same key and item within 24 h is sent once. */
  idempotencyKey?: string
  /** Whether a person asked for it. Default 'automatic'. */
  kind?: 'manual' | 'automatic'
  /** Of the request that it comes from: the operation of a tracked queue shows it. */
  requestId?: string
  trace?: string
  timeout?: Duration
}

export interface ClaimOptions {
  /** Default 1, at most 1,000. */
  max?: number
  /** How long to wait for the first item. Default: not at all. */
  wait?: Duration
  /** Default: the queue's. */
  lease?: Duration
  signal?: AbortSignal
}

/** What a queue stands on once it is open. */
export interface QueueGround {
  namespace: string
  connection: Connection
  hints: Hints
  stores: LaneStores
  clock: Clock
  network: Clock
  randomness: Randomness
  telemetry: Telemetry
  /** Of this process, and of this start of it. */
  worker: string
  start: string
  timeoutMs: number
  /** Asks until there is an answer; REDIS_UNAVAILABLE when there is none in time. For what may be asked twice. */
  repeated<T>(ask: () => Promise<T>): Promise<T>
  maxWaiting: number
  maxWaitingBytes: number
}

/** Its definition as this process knows it, and which one that is. */
export interface Ready {
  ground: QueueGround
  settings: QueueSettings
  revision: number
}

interface Open {
  ground: QueueGround
  store: LaneStore
  sender: Sender
  settler: Settler
}

const knownOfSend = new Set<keyof SendOptions>([
  ...([
    'tenant',
    'key',
    'delay',
    'ttl',
    'priority',
    'idempotencyKey',
    'kind',
    'requestId',
    'trace',
    'timeout',
  ] as const),
])
const knownOfClaim = new Set<keyof ClaimOptions>(['max', 'wait', 'lease', 'signal'])
const mostPriority = 100
const lookMs = 1_000

export class QueueDoor {
  readonly name: string
  readonly #ready: () => Promise<Ready>
  #open: Open | undefined

  constructor(name: string, ready: () => Promise<Ready>) {
    this.name = name
    this.#ready = ready
  }

  get isIdle(): boolean {
    return this.#open?.sender.isIdle ?? true
  }

  /** Puts an item straight into the queue. */
  async send(data: unknown, options: SendOptions = {}): Promise<Sent> {
    checkKnown(options, knownOfSend)
    return this.sendFor(undefined, data, options)
  }

  /** `trigger`: the one that sends it. */
  async sendFor(trigger: string | undefined, data: unknown, options: SendOptions): Promise<Sent> {
    const { tenant = defaultTenant, key, trace, delay = 0, ttl = 0, priority = 0, idempotencyKey, timeout } = options
    const envelope = (written: WrittenEvent) => withOrigin(envelopeOf(written), options, trigger)
    const written = writeEvent(this.name, data, { tenant, key, trace })
    const fingerprint = createHash('sha256')
      .update(`${key ?? ''}\n${written.data}`)
      .digest('base64url')
    const item: Omit<SentItem, 'id'> = {
      lane: tenant,
      key: keyWord(key ?? ''),
      delayMs: checkTime('delay', delay),
      ttlMs: checkTime('ttl', ttl),
      priority: checkPriority(priority),
      once: idempotencyKey === undefined ? '' : onceHash(tenant, idempotencyKey),
      fingerprint,
      envelope: envelope(written),
    }
    if (item.ttlMs > 0 && item.delayMs >= item.ttlMs)
      throw invalid('ttl', ttl, 'must be longer than the delay, or nobody will ever get it')
    const { open, settings, revision } = await this.#whenOpen()
    const { ground, sender } = open
    const timeoutMs = timeout === undefined ? ground.timeoutMs : checkTime('timeout', timeout)
    const id = `${this.name}.${ground.randomness.id()}`
    const tracked =
      settings.track === false ? {} : { shown: { input: redactorOf(settings.redact).input(written.data), revision } }
    return sender.send({ item: { id, ...item }, ...tracked, idempotencyKey, bytes: written.bytes, timeoutMs })
  }

  /** Claims by hand: what is not acked before its lease ends is given to someone else. */
  async claim<Data = unknown>(options: ClaimOptions = {}): Promise<ClaimedLease<Data>> {
    checkKnown(options, knownOfClaim)
    const { max = 1, wait = 0, lease, signal } = options
    checkCount('max', max, laneLimits.claim)
    const waitMs = checkTime('wait', wait)
    const { open, settings } = await this.#whenOpen()
    const leaseMs = lease === undefined ? settings.leaseMs : checkTime('lease', lease)
    if (leaseMs < 1) throw invalid('lease', lease, 'must be at least 1ms')
    const door = this.#leaseDoor(open, settings)
    const claim = async (idleName?: string) => this.#claimOnce<Data>(open, door, max, leaseMs, idleName)
    return waitMs === 0 ? claim() : this.#claimWaiting(open, claim, waitMs, signal)
  }

  /** Claims and acks in one step: what it answers is never given again, also when the answer is lost. */
  async pop<Data = unknown>(options: { max?: number } = {}): Promise<ClaimedItem<Data>['event'][]> {
    checkKnown(options, new Set(['max']))
    const { max = 1 } = options
    checkCount('max', max, laneLimits.claim)
    const { open, settings } = await this.#whenOpen()
    const { worker, start } = open.ground
    const pop = () => open.store.claim({ token: undefined, n: max, leaseMs: 0, worker, start, byHand: true })
    const reply = await untilGiven(pop).catch((error) => {
      // Not asked twice: what the first answer had would be gone.
      throw mayPass(error) ? BusbarError.of('REDIS_UNAVAILABLE', { problem: errorText(error) }, error) : error
    })
    if (reply.kind === 'gone') throw this.#gone()
    const door = this.#leaseDoor(open, settings)
    if (reply.kind !== 'claimed') return []
    return reply.items.map((text) => new ClaimedItem<Data>(door, '', reply.nowMs, readItem(text)).event)
  }

  /** A lease of which only the token is at hand. */
  lease(token: string): HeldLease {
    return new HeldLease(token, async () => {
      const { open, settings } = await this.#whenOpen()
      const door = this.#leaseDoor(open, settings)
      return { ...door, settle: (...said) => this.#inTime(open, door.settle(...said)) }
    })
  }

  async close(deadlineMs: number): Promise<void> {
    if (!this.#open) return
    const { sender, settler } = this.#open
    await sender.close(deadlineMs)
    await settler.flush(deadlineMs)
    settler.end()
  }

  async #whenOpen(): Promise<Omit<Ready, 'ground'> & { open: Open }> {
    const { ground, ...its } = await this.#ready()
    this.#open ??= this.#openOn(ground)
    return { open: this.#open, ...its }
  }

  #openOn(ground: QueueGround): Open {
    const { stores, randomness, maxWaiting, maxWaitingBytes } = ground
    const store = stores.of(this.name)
    const sender = new Sender(ground, { name: randomness.id(), queue: this.name, store, maxWaiting, maxWaitingBytes })
    return { ground, store, sender, settler: new Settler(ground, this.name, store) }
  }

  #leaseDoor({ ground, store, settler }: Open, settings: QueueSettings): LeaseDoor {
    return {
      ...{ queue: this.name, store, repeated: ground.repeated },
      backoffMs: (attempt) => backoffMs(settings.backoffMs, attempt, ground.randomness),
      newToken: () => ground.randomness.id(),
      doneWith: (output) => doneWith(settings, output),
      settle: (token: string, id: string, outcome: Outcome) =>
        new Promise<SettleWord>((resolve, reject) =>
          settler.settle({
            ...{ token, id, outcome: shownOutcome(settings, outcome) },
            told(how) {
              if (how === 'unsaid') reject(BusbarError.of('BUS_CLOSED'))
              else resolve(how === 'settled' ? how : 'stale')
            },
          }),
        ),
    }
  }

  async #claimOnce<Data>(
    { ground, store }: Open,
    door: LeaseDoor,
    n: number,
    leaseMs: number,
    idleName?: string,
  ): Promise<ClaimedLease<Data>> {
    const { worker, start, randomness } = ground
    const token = randomness.id()
    const waiting = idleName === undefined ? {} : { idleName }
    const claim = () => store.claim({ token, n, leaseMs, worker, start, byHand: true, ...waiting })
    const reply = await untilGiven(() => ground.repeated(claim))
    if (reply.kind === 'gone') throw this.#gone()
    if (reply.kind !== 'claimed') return { token, items: [], dueInMs: undefined, ack: async () => undefined }
    const items = reply.items.map((text) => new ClaimedItem<Data>(door, token, reply.nowMs, readItem(text)))
    const ack = async () => void (await Promise.all(items.map((item) => item.ack())))
    return { token, items, dueInMs: reply.more ? 0 : reply.dueInMs, ack }
  }

  /** Asks again when it hears its name, when something is due, and once a second, until there is something or time is up. */
  async #claimWaiting<Data>(
    { ground, store }: Open,
    claim: (idleName?: string) => Promise<ClaimedLease<Data>>,
    waitMs: number,
    signal: AbortSignal | undefined,
  ): Promise<ClaimedLease<Data>> {
    const { hints, network, randomness } = ground
    const name = randomness.id()
    const until = network.monotonicMs() + waitMs
    let wake: () => void = () => undefined
    const unlisten = await hints.listen(store.keys.laneWake, (names) => names.split(' ').includes(name) && wake())
    const onAbort = () => wake()
    signal?.addEventListener('abort', onAbort)
    try {
      for (;;) {
        const woken = new Promise<void>((resolve) => {
          wake = resolve
        })
        const lease = await claim(name)
        const leftMs = until - network.monotonicMs()
        if (lease.items.length > 0 || leftMs <= 0 || signal?.aborted) return lease
        const timer = network.after(Math.min(leftMs, lookMs, lease.dueInMs ?? lookMs), () => wake())
        await woken
        timer.cancel()
        if (signal?.aborted) return lease
      }
    } finally {
      unlisten()
      signal?.removeEventListener('abort', onAbort)
      // Nobody is to be woken in its place.
      await store.leaveIdle(name).catch(() => undefined)
    }
  }

  /** What a lost Redis keeps from being said goes on being said; whoever waits for it hears that it is away. */
  #inTime<T>({ ground: { network, timeoutMs } }: Open, answer: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const problem = `no answer within ${timeoutMs} ms`
      const timer = network.after(timeoutMs, () => reject(BusbarError.of('REDIS_UNAVAILABLE', { problem })))
      answer.then(resolve, reject).finally(() => timer.cancel())
    })
  }

  #gone(): BusbarError {
    return BusbarError.of('QUEUE_NOT_FOUND', { name: this.name })
  }
}

/** Who asked for it stands in the header, behind what every event has. */
function withOrigin(envelope: string, { kind, requestId }: SendOptions, trigger: string | undefined): string {
  if (kind === undefined && requestId === undefined && trigger === undefined) return envelope
  if (kind !== undefined && kind !== 'manual' && kind !== 'automatic')
    throw invalid('kind', kind, "must be 'manual' or 'automatic'")
  const request = requestId === undefined ? undefined : checkText('requestId', requestId, limits.traceBytes)
  const end = envelope.indexOf('\n')
  const origin = JSON.stringify({ kind, request, trigger }).slice(1)
  return `${envelope.slice(0, end - 1)},${origin}${envelope.slice(end)}`
}

function checkPriority(priority: unknown): number {
  if (Number.isInteger(priority) && Math.abs(priority as number) <= mostPriority) return priority as number
  throw invalid('priority', priority, `must be a whole number from -${mostPriority} to ${mostPriority}`)
}

const onceHash = (tenant: string, key: string): string =>
  createHash('sha256')
    .update(`${tenant}\n${checkText('idempotencyKey', key, limits.idempotencyKeyBytes)}`)
    .digest('base64url')

/** A claim that was busy with what has expired, or was given up, has not looked at what has not, or lies behind it. */
async function untilGiven(claim: () => Promise<ClaimReply>): Promise<ClaimReply> {
  let reply = await claim()
  while (reply.kind === 'claimed' && reply.more && reply.items.length === 0) reply = await claim()
  return reply
}
