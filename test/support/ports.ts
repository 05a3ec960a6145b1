/**
 * Loopback ports for servers that come back on the same port.
 *
 * They lie below the range from which systems take the ports of outgoing connections (32,768 on Linux, 49,152 elsewhere):
 * while the server is away nobody is given its port by chance, and a client that keeps connecting cannot meet itself.
 */
import { randomInt } from 'node:crypto'
import { once } from 'node:events'
import { createServer } from 'node:net'

export const loopback = '127.0.0.1'

export async function freePort(): Promise<number> {
  for (;;) {
    const port = randomInt(10_000, 32_000)
    if (await isFree(port)) return port
  }
}

async function isFree(port: number): Promise<boolean> {
  const server = createServer()
  try {
    await once(server.listen(port, loopback), 'listening')
  } catch {
    return false
  }
  await new Promise((closed) => server.close(closed))
  return true
}
