/**
 * The topics that a hub follows, each for as long as one of its readers names it.
 *
 * Their hints are all that it hears: what is published under other topics costs its process nothing. A reader whose
 * pattern does not say its topics makes the hub hear the hints of all partitions instead.
 */
import type { TopicSeq } from '../../log/hint.ts'
import type { Namespace } from '../../log/namespace.ts'
import { type Pattern, topicsOf } from '../../pattern.ts'
import type { Connection } from '../../redis/connection.ts'
import type { Hints } from '../../redis/hints.ts'
import { topicWakeChannel } from '../../redis/keys.ts'

/** One who follows, and no longer after `end`. */
export interface Following {
  /** Up to here nothing of the partition is offered any more to who begins now. */
  passed(partition: number): number
  end(): void
}

/** A topic, or everything. */
interface Followed {
  followers: number
  listening: Promise<() => void>
  /** Per partition: up to here it had nothing that anyone wanted, although the hub may not have come so far. */
  passed: number[]
}

interface Lasts {
  last: number
  topics: TopicSeq[] | undefined
}

export interface FollowContext {
  namespace: Namespace
  connection: Connection
  hints: Hints
}

interface Heard {
  ofPartition(partition: number, message: string): void
  ofTopic(message: string): void
}

const everything = '>'
// Each look asks all partitions for all of them; and every one is a subscription in Redis.
const maxTopics = 1_000

export class FollowedTopics {
  readonly #context: FollowContext
  readonly #heard: Heard
  readonly #followed = new Map<string, Followed>()

  constructor(context: FollowContext, heard: Heard) {
    this.#context = context
    this.#heard = heard
  }

  /** Resolves when the hints are heard. */
  async follow(pattern: Pattern): Promise<Following> {
    const names = this.#namesOf(pattern)
    const followed = names.map((name) => this.#join(name))
    await Promise.all(followed.map(({ listening }) => listening))
    return {
      passed: (partition) => Math.max(...followed.map(({ passed }) => passed[partition]!)),
      end: () => {
        for (const name of names.splice(0)) this.#leave(name)
      },
    }
  }

  /** Every hint is heard, whatever its topics. */
  get hearsAll(): boolean {
    return this.#followed.has(everything)
  }

  /** Undefined when every hint is heard. */
  get topics(): string[] | undefined {
    return this.hearsAll ? undefined : [...this.#followed.keys()]
  }

  /**
   * Where the partition ends, and where the followed topics were last; undefined while everything is heard. A reader whose topic
   * is followed only after this was asked begins behind it: it asks for its place on the same connection.
   */
  async readLasts(partition: number, except: readonly TopicSeq[] = []): Promise<Lasts> {
    const { connection, namespace } = this.#context
    const topics = this.topics?.filter((name) => !except.some(({ topic }) => topic === name))
    if (topics?.length === 0 && except.length > 0) return { last: 0, topics: [] }
    const fields = ['last', ...(topics ?? []).map((topic) => `last:${topic}`)]
    const [last, ...seqs] = await connection.redis.hmget(namespace.partitions[partition]!.meta, ...fields)
    return { last: Number(last ?? 0), topics: topics?.map((topic, i) => ({ topic, seq: Number(seqs[i] ?? 0) })) }
  }

  /** Has one of these topics, which were last at these seqs, anything for a hub that is at this position? */
  haveNew(partition: number, at: number, lasts: readonly TopicSeq[]): boolean {
    return lasts.some(({ topic, seq }) => seq > at && seq > this.#passed(topic, partition))
  }

  pass(topic: string, partition: number, seq: number): void {
    const followed = this.#followed.get(topic)
    if (followed) followed.passed[partition] = seq
  }

  end(): void {
    for (const [name, { listening }] of this.#followed) {
      this.#followed.delete(name)
      void listening.then((unlisten) => unlisten())
    }
  }

  /** Everything of a topic that is not followed is passed. */
  #passed(topic: string, partition: number): number {
    return this.#followed.get(topic)?.passed[partition] ?? Number.POSITIVE_INFINITY
  }

  #namesOf(pattern: Pattern): string[] {
    const topics = topicsOf(pattern)
    const added = topics?.filter((topic) => !this.#followed.has(topic)) ?? []
    return topics && this.#followed.size + added.length <= maxTopics ? topics : [everything]
  }

  #join(name: string): Followed {
    const known = this.#followed.get(name)
    if (known) {
      known.followers += 1
      return known
    }
    const listening = name === everything ? this.#listenToAll() : this.#listenTo(name)
    const followed = { followers: 1, listening, passed: this.#context.namespace.partitions.map(() => 0) }
    this.#followed.set(name, followed)
    return followed
  }

  #leave(name: string): void {
    const followed = this.#followed.get(name)
    if (!followed) return
    followed.followers -= 1
    if (followed.followers > 0) return
    this.#followed.delete(name)
    void followed.listening.then((unlisten) => unlisten())
  }

  #listenTo(topic: string): Promise<() => void> {
    const channel = topicWakeChannel(this.#context.namespace.name, topic)
    return this.#context.hints.listen(channel, (message) => this.#heard.ofTopic(message))
  }

  async #listenToAll(): Promise<() => void> {
    const listening = this.#context.namespace.partitions.map(({ wake }, partition) =>
      this.#context.hints.listen(wake, (message) => this.#heard.ofPartition(partition, message)),
    )
    const unlistens = await Promise.all(listening)
    return () => {
      for (const unlisten of unlistens) unlisten()
    }
  }
}
