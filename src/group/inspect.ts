/** Looks at a group from outside: its members, and who has which partition. */
import type { Redis } from 'ioredis'
import type { GroupKeys } from '../redis/keys.ts'

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
  /** Members, ever. */
  joined: number
  left: number
  expired: number
}

export async function inspectGroup(redis: Redis, keys: GroupKeys): Promise<GroupFacts> {
  const [members, owners, group] = await Promise.all([
    redis.hgetall(keys.members),
    redis.hgetall(keys.owners),
    redis.hgetall(keys.group),
  ])
  const count = (field: string) => Number(group[field] ?? 0)
  return {
    members: Object.entries(members)
      .map(([name, text]) => readMember(name, text))
      .sort((a, b) => a.joined - b.joined),
    owners: Object.entries(owners)
      .map(([partition, text]) => readOwner(Number(partition), text))
      .sort((a, b) => a.partition - b.partition),
    joined: count('joined'),
    left: count('left'),
    expired: count('expired'),
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
