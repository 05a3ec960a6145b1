/** The scripts of group/, with what they are given and what they answer. */
import type { GroupKeys } from '../redis/keys.ts'
import { defineScript } from '../redis/script.ts'

/** How a group keeps time, in ms. Equal for all members. */
export interface GroupTiming {
  heartbeatMs: number
  /** Silence after which a member is gone. */
  expiryMs: number
  /** What an owner has to let go of a partition that another one is to have. */
  graceMs: number
  /** From a join to the new division: members that start together are divided once. */
  joinDelayMs: number
}

export interface HeartbeatInput {
  keys: GroupKeys
  /** Instead of the server's clock, for tests. */
  nowUs?: number
  act: 'join' | 'beat' | 'leave'
  name: string
  start: string
  partitions: number
  timing: GroupTiming
  /** What the member says of itself, for people: JSON. */
  about: string
}

/** A partition that a member owns. */
export interface Grant {
  partition: number
  /** Fences: a commit under any other epoch changes nothing. */
  epoch: number
  cursor: number
  /** Time left to let it go; undefined: nobody else is to have it. */
  releaseInMs: number | undefined
}

export type HeartbeatReply =
  | { kind: 'member'; members: number; dueInMs: number | undefined; revision: number; grants: readonly Grant[] }
  | { kind: 'replaced' }
  | { kind: 'left' }

type RawGrant = [partition: number, epoch: string, cursor: string, left: number]
const orNone = (ms: number): number | undefined => (ms < 0 ? undefined : ms)

export const heartbeatScript = defineScript({
  file: new URL('./heartbeat.lua', import.meta.url),
  keys: ({ keys }: HeartbeatInput) => [keys.group, keys.members, keys.owners, keys.cursors],
  args: ({ keys, nowUs, act, name, start, partitions, timing, about }) => [
    nowUs ?? '',
    act,
    name,
    start,
    partitions,
    timing.heartbeatMs * 1000,
    timing.expiryMs * 1000,
    timing.graceMs * 1000,
    timing.joinDelayMs * 1000,
    keys.groupWake,
    about,
  ],
  reply: (raw: ['member', number, number, number, ...RawGrant[]] | ['replaced'] | ['left']): HeartbeatReply => {
    if (raw[0] !== 'member') return { kind: raw[0] }
    const [kind, members, due, revision, ...grants] = raw
    return {
      kind,
      members,
      dueInMs: orNone(due),
      revision,
      grants: grants.map(([partition, epoch, cursor, left]) => ({
        partition,
        epoch: Number(epoch),
        cursor: Number(cursor),
        releaseInMs: orNone(left),
      })),
    }
  },
})

/** How far the owner of a partition is. */
export interface Said {
  partition: number
  epoch: number
  cursor: number
  release: boolean
  /** "<events a second> <at, ms>" when it is time to say so. */
  rate?: string
}

export const commitScript = defineScript({
  file: new URL('./commit.lua', import.meta.url),
  keys: ({ keys }: { keys: GroupKeys; said: readonly Said[] }) => [keys.owners, keys.cursors, keys.rates],
  args: ({ keys, said }) => [
    keys.groupWake,
    ...said.flatMap(({ partition, epoch, cursor, release, rate }) => [
      partition,
      epoch,
      cursor,
      release ? 'release' : 'keep',
      rate ?? '',
    ]),
  ],
  reply: ([, ...words]: ['committed', ...('done' | 'stale')[]]) => words,
})
