/**
 * Processes that must not outlive this one, however it ends.
 *
 * A shell waits on a pipe that only this process holds. A line on it means "no longer needed"; its end means that this
 * process is gone, also by SIGKILL, when no exit handler runs: then the shell kills the guarded process.
 */
import { spawn } from 'node:child_process'

const watch = 'read -r released || { kill -9 "$0"; [ -z "$1" ] || rm -rf "$1"; }'

/** Kills `pid` and removes `folder` when this process ends. Returns how to let go of it, to be called once it has exited. */
export function guard(pid: number, folder = ''): () => void {
  // Detached: the Ctrl-C that ends the test run must not end the shell first.
  const shell = spawn('sh', ['-c', watch, String(pid), folder], { stdio: ['pipe', 'ignore', 'ignore'], detached: true })
  const { stdin } = shell
  stdin.on('error', () => {})
  shell.unref()
  const handle = stdin as typeof stdin & { unref?: () => void }
  handle.unref?.()
  return () => stdin.end('released\n')
}
