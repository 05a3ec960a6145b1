/**
 * All queues that were declared on one bus, and the workers of this process that draw from them.
 *
 * A definition is registered once per process: by run(), or by the first use of its queue.
 */

import { BusbarError, shown } from '../../errors.ts'
import { queueKeys } from '../../redis/keys.ts'
import { nameTaken, type Put } from '../../route/change.ts'
import type { SubscriptionFacts, Subscriptions } from '../../route/subscriptions.ts'
import { inGroups } from '../../runtime/in-groups.ts'
import {
  type CheckedQueue,
  checkQueue,
  checkQueueName,
  type Drawn,
  type QueueOptions,
  type QueueSettings,
  settingsOf,
  storedOptions,
  type WorkSettings,
} from './options.ts'
import { QueueDoor, type QueueGround } from './queue.ts'
import { type BatchHandler, type QueueHandler, QueueWorker } from './worker.ts'

export interface QueuesOptions {
  open(): Promise<QueueGround>
  /** Whether this process comes back under its name. */
  isNamed: boolean
  subscriptions: Subscriptions
}

interface Defined {
  settings: QueueSettings
  revision: number
}

interface Declared {
  /** Undefined: as it is stored. */
  checked: CheckedQueue | undefined
  door: QueueDoor
  registered: Promise<Defined> | undefined
}

// How long a change of a definition by someone else may go unnoticed by those who claim by hand.
const makingMs = 2_000
const askAgainMs = 25
const definedMs = 1_000

export class Queues {
  readonly #options: QueuesOptions
  readonly #declared = new Map<string, Declared>()
  /** Doors to queues that others have declared. */
  readonly #opened = new Map<string, QueueDoor>()
  readonly #workers: QueueWorker[] = []
  readonly #running = new Set<QueueWorker>()
  #started = false
  #closed = false

  constructor(options: QueuesOptions) {
    this.#options = options
  }

  /** Those that were declared here, and those that only workers name. */
  get names(): readonly string[] {
    const drawn = this.#workers.flatMap((worker) => worker.drawn.map(({ name }) => name))
    return [...new Set([...this.#declared.keys(), ...drawn])]
  }

  /** Those that running workers of this process draw from. */
  get workedOn(): readonly string[] {
    return [...new Set([...this.#running].flatMap((worker) => worker.drawn.map(({ name }) => name)))]
  }

  /** How many handlers of this process have begun. */
  get begun(): number {
    return [...this.#running].reduce((sum, { begun }) => sum + begun, 0)
  }

  declare(name: string, options: QueueOptions | undefined): QueueDoor {
    if (this.#declared.has(checkQueueName(name)))
      throw BusbarError.of('SETTING_INVALID', { problems: [`queue ${shown(name)} is declared twice`] })
    const checked = options && checkQueue(options)
    const ready = async () => {
      const ground = await this.#options.open()
      return { ground, ...(await this.#register(name)) }
    }
    const door = new QueueDoor(name, ready)
    this.#declared.set(name, { checked, door, registered: undefined })
    return door
  }

  /** The door to a queue that is known to be registered. */
  open(name: string): QueueDoor {
    const known = this.#declared.get(name)?.door ?? this.#opened.get(name)
    if (known) return known
    const defined = this.#rememberFor(definedMs, () => this.#define(name))
    let made = false
    const door = new QueueDoor(name, async () => {
      const [ground, its] = await Promise.all([this.#options.open(), defined()])
      if (!made) made = await isMade(ground, name)
      return { ground, ...its }
    })
    this.#opened.set(name, door)
    return door
  }

  /** There is no such queue any more: one of that name later is another one. */
  forget(name: string): void {
    if (this.#opened.get(name)?.isIdle) this.#opened.delete(name)
  }

  /** Registers a queue, or changes its definition, for everyone. */
  async put(name: string, options: QueueOptions): Promise<Put['change']> {
    return (await this.#putDefinition(checkQueueName(name), checkQueue(options))).change
  }

  /** What a worker of this process does; run() starts it. */
  attach(drawn: readonly Drawn[], handler: QueueHandler | BatchHandler, settings: WorkSettings): QueueWorker {
    const problems: string[] = []
    if (this.#started) problems.push('work() comes too late: workers are declared before run()')
    if (typeof handler !== 'function') problems.push('the handler must be a function')
    if (problems.length > 0) throw BusbarError.of('SETTING_INVALID', { problems })
    const worker = new QueueWorker(drawn, handler, settings)
    this.#workers.push(worker)
    return worker
  }

  /** Registers what was declared, and starts the workers of the queues named, or of all. */
  async start(only: readonly string[] | undefined): Promise<void> {
    this.#started = true
    if (this.names.length === 0) return
    const ground = await this.#options.open()
    await inGroups(this.#declared.keys(), (name) => this.#register(name))
    const { isNamed } = this.#options
    const wanted = this.#workers.filter(({ drawn }) => !only || drawn.some(({ name }) => only.includes(name)))
    for (const worker of wanted) {
      if (this.#closed) return
      this.#running.add(worker)
      const sourceOf = (queue: string) => ({
        store: ground.stores.of(queue),
        define: () => this.#define(queue),
      })
      await worker.start({ ...ground, isNamed, sourceOf })
    }
  }

  /** Items were sent to this queue on the connection of its claims. */
  expect(queue: string): void {
    for (const worker of this.#running) worker.expect(queue)
  }

  /** Whether a claim of a worker that waits here goes along: see Source.takeBy. */
  takeBy(queue: string, take: Parameters<QueueWorker['takeBy']>[1]): boolean {
    for (const worker of this.#running) if (worker.takeBy(queue, take)) return true
    return false
  }

  get areRunning(): boolean {
    return this.#running.size > 0
  }

  /** As far as this process knows: nothing waits, runs or is on its way. */
  get isDry(): boolean {
    return [...this.#running].every((worker) => worker.isDry) && this.#doors.every((door) => door.isIdle)
  }

  /** Workers end first: what they hold goes back while there is a connection. */
  async close(timeoutMs: number): Promise<void> {
    this.#closed = true
    await Promise.all([...this.#running].map((worker) => worker.close(timeoutMs)))
    await Promise.all(this.#doors.map((door) => door.close(timeoutMs)))
  }

  get #doors(): QueueDoor[] {
    return [...[...this.#declared.values()].map(({ door }) => door), ...this.#opened.values()]
  }

  #register(name: string): Promise<Defined> {
    const declared = this.#declared.get(name)!
    const register = () => (declared.checked ? this.#put(name, declared.checked) : this.#asItIs(name))
    declared.registered ??= register().catch((error) => {
      declared.registered = undefined
      throw error
    })
    return declared.registered
  }

  async #put(name: string, checked: CheckedQueue) {
    const { subscription } = await this.#putDefinition(name, checked)
    return { settings: checked.settings, revision: subscription.revision }
  }

  async #putDefinition(name: string, { match, settings, from, force }: CheckedQueue): Promise<Put> {
    await this.#refuseOtherOrder(name, settings)
    const definition = { name, kind: 'queue' as const, match, options: storedOptions(settings) }
    return this.#options.subscriptions.put(definition, { from, force })
  }

  /** What waits would have to be sorted anew. */
  async #refuseOtherOrder(name: string, { ordered }: QueueSettings): Promise<void> {
    const stored = await this.#defined(name)
    if (!stored || stored.settings.ordered === ordered) return
    const [is, say] = ordered ? ['not ordered', 'leave out ordered'] : ['ordered', 'say ordered: true']
    const problem = `queue ${shown(name)} is ${is}, and stays so: ${say}, take another name, or remove it first`
    throw BusbarError.of('SETTING_INVALID', { problems: [problem] })
  }

  async #asItIs(name: string) {
    const defined = await this.#defined(name)
    if (!defined) return this.#put(name, checkQueue({}))
    await isMade(await this.#options.open(), name)
    return defined
  }

  /** The answer of the last call for so long; a failed one is asked again at once. */
  #rememberFor<T>(ms: number, ask: () => Promise<T>): () => Promise<T> {
    let answer: Promise<T> | undefined
    let until = 0
    return () => {
      const now = performance.now()
      if (answer && now < until) return answer
      const asked = ask()
      answer = asked
      until = now + ms
      asked.catch(() => {
        if (answer === asked) answer = undefined
      })
      return asked
    }
  }

  /** As it is stored now, whoever put it there. */
  async #define(name: string): Promise<Defined> {
    return definedBy(await this.#options.subscriptions.get(name))
  }

  async #defined(name: string): Promise<Defined | undefined> {
    const found = await this.#options.subscriptions.find(name)
    return found && definedBy(found)
  }
}

function definedBy({ name, kind, options, revision }: SubscriptionFacts): Defined {
  if (kind !== 'queue') throw nameTaken(name, kind)
  return { settings: settingsOf(options), revision }
}

/** A queue is in the table before its store is made: whoever puts it is about to, or else a router will. Whether it has come. */
async function isMade({ namespace, connection, network, repeated }: QueueGround, name: string): Promise<boolean> {
  const { store } = queueKeys(namespace, name)
  for (let waitedMs = 0; waitedMs <= makingMs; waitedMs += askAgainMs) {
    if ((await repeated(() => connection.redis.exists(store))) === 1) return true
    await new Promise<void>((resolve) => network.after(askAgainMs, resolve))
  }
  return false
}
