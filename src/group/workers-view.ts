/** The running processes of a namespace as people see them: what each is and runs, what it holds, and who leads. */
import type { Redis } from 'ioredis'
import { groupKeys, processorKeys, processorsKey, workersGroup } from '../redis/keys.ts'
import { type GroupFacts, type Hearing, inspectGroup, type MemberFacts } from './inspect.ts'

/** What a process says of itself when it starts to run. */
export interface About {
  version: string
  pid: number
  host: string
  /** 'worker', 'server', or what the application calls it. */
  role: string
  /** Names of the processors and tasks that it was started with. */
  runs: readonly string[]
}

export interface WorkerFacts extends About {
  name: string
  /** ms. */
  joined: number
  lastSeen: number
  leads: boolean
  holds: { processor: string; partitions: number[] }[]
}

export interface WorkersFacts {
  /** In the order in which they joined. */
  workers: WorkerFacts[]
  /** Starts, ever: each still runs, or has left, expired or been replaced by another of its name. */
  joined: number
  left: number
  expired: number
  replaced: number
}

export async function readWorkers(redis: Redis, namespace: string, hearing: Hearing): Promise<WorkersFacts> {
  const [group, processors] = await Promise.all([
    inspectGroup(redis, groupKeys(namespace, workersGroup), hearing),
    redis.hkeys(processorsKey(namespace)),
  ])
  const shared = await Promise.all(
    processors.sort().map(async (processor) => {
      const { owners } = await inspectGroup(redis, processorKeys(namespace, processor), hearing)
      return { processor, owners }
    }),
  )
  const { members, owners, ...counts } = group
  const leader = owners[0]?.owner
  return { workers: members.map((member) => factsOf(member, member.name === leader, shared)), ...counts }
}

function factsOf(
  { name, joined, lastSeen, about }: MemberFacts,
  leads: boolean,
  shared: readonly { processor: string; owners: GroupFacts['owners'] }[],
): WorkerFacts {
  const holds = shared.map(({ processor, owners }) => ({
    processor,
    partitions: owners.filter(({ owner }) => owner === name).map(({ partition }) => partition),
  }))
  const { version = '', pid = 0, host = '', role = '', runs = [] } = about as Partial<About>
  const own = { name, role, runs, version, host, pid, joined, lastSeen, leads }
  return { ...own, holds: holds.filter(({ partitions }) => partitions.length > 0) }
}
