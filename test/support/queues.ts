/** What tests of queues have in common. */
import type { Bus } from '../../src/bus.ts'
import type { Queue } from '../../src/bus-types.ts'

/** Sends items of these tenants in this order, one after the other; answers their ids. */
export async function sendAll(queue: Queue, tenants: readonly string[]): Promise<string[]> {
  const sent = await Promise.all(tenants.map((tenant, n) => queue.send({ n }, { tenant })))
  return sent.map(({ id }) => id)
}

/** Claims one item at a time and acks it; answers whose they were. */
export async function claimTenants(queue: Queue, n: number): Promise<string[]> {
  const tenants: string[] = []
  for (let i = 0; i < n; i += 1) {
    const { items } = await queue.claim()
    for (const item of items) {
      tenants.push(item.event.tenant)
      await item.ack()
    }
  }
  return tenants
}

export const repeat = (tenant: string, n: number): string[] => Array.from({ length: n }, () => tenant)

/** Waits until everything published is in the stores: as many as the queue is to have had. */
export async function entered(bus: Bus, queue: string, n: number): Promise<boolean> {
  return (await bus.queues.get(queue)).in === n
}
