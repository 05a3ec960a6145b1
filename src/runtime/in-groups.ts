/** Does something with each of many, so many at a time: what is asked together costs few round trips, and nobody else waits for all of it. */
const together = 50

export async function inGroups<T>(all: Iterable<T>, act: (one: T) => Promise<unknown>): Promise<void> {
  const rest = [...all]
  while (rest.length > 0) await Promise.all(rest.splice(0, together).map(act))
}
