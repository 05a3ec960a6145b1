/** Looks at a group from outside: its members, and who has which partition. */
import type { Redis } from 'ioredis'
import type { GroupKeys } from '../redis/keys.ts'
import { serverMs } from '../redis/server-time.ts'
import type { Clock } from '../runtime/clock.ts'
import type { GroupTiming } from './scripts.ts'

export interface MemberFacts {
  name: string
  /** ms. */
  lastSeen: number
  joined: number
  about: Readonly<Record<string, unknown>>
}

export interface OwnerFacts {
  partition: number
  owner: string | null
  epoch: number
  /** Who is to have it, while another one still has it. */
  wanted: string | null
}

export interface GroupFacts {
  members: MemberFacts[]
  owners: OwnerFacts[]
  /** Starts of members, ever: each is still there, or has left, expired or been replaced by another of its name. */
  joined: number
  left: number
  expired: number
  replaced: number
}

/** How long a silent member counts as there, and by which clock. */
export interface Hearing {
  clock: Clock
  groupTiming: GroupTiming
}

export async function inspectGroup(redis: Redis, keys: GroupKeys, hearing: Hearing): Promise<GroupFacts> {
  const [members, owners, group, nowMs] = await Promise.all([
    redis.hgetall(keys.members),
    redis.hgetall(keys.owners),
    redis.hgetall(keys.group),
    serverMs(redis, hearing.clock),
  ])
  const count = (field: string) => Number(group[field] ?? 0)
  const stored: GroupFacts = {
    members: Object.entries(members)
      .map(([name, text]) => readMember(name, text))
      .sort((a, b) => a.joined - b.joined),
    owners: Object.entries(owners)
      .map(([partition, text]) => readOwner(Number(partition), text))
      .sort((a, b) => a.partition - b.partition),
    joined: count('joined'),
    left: count('left'),
    expired: count('expired'),
    replaced: count('replaced'),
  }
  return withoutSilent(stored, nowMs - hearing.groupTiming.expiryMs)
}

/** The silent are removed by the heartbeat of another; where nobody is left to do that, they are gone all the same. */
function withoutSilent(stored: GroupFacts, heardSince: number): GroupFacts {
  const members = stored.members.filter(({ lastSeen }) => lastSeen >= heardSince)
  const names = new Set(members.map(({ name }) => name))
  const ifThere = (name: string | null) => (name !== null && names.has(name) ? name : null)
  return {
    ...stored,
    members,
    owners: stored.owners.map((one) => ({ ...one, owner: ifThere(one.owner), wanted: ifThere(one.wanted) })),
    expired: stored.expired + stored.members.length - members.length,
  }
}

function readMember(name: string, text: string): MemberFacts {
  const [, seen, joined, ...about] = text.split(' ')
  return {
    name,
    lastSeen: Math.floor(Number(seen) / 1000),
    joined: Math.floor(Number(joined) / 1000),
    about: JSON.parse(about.join(' ') || '{}') as Record<string, unknown>,
  }
}

function readOwner(partition: number, text: string): OwnerFacts {
  const [owner, epoch, , wanted] = text.split(' ')
  const nameOf = (name: string | undefined) => (name === '-' || name === undefined ? null : name)
  return {
    partition,
    owner: nameOf(owner),
    epoch: Number(epoch),
    wanted: wanted === owner ? null : nameOf(wanted),
  }
}
